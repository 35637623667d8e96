"""Saving: the nodes that write speech and subtitles to files, and the formats, names and facts of these files."""

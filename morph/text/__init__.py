"""Normalize and split text; scripts and subtitles. Imports no torch."""

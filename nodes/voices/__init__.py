"""Voices: the nodes that make one, save it and load it."""

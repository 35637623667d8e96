"""Speak lists of lines: cache, word check, failures of single lines."""

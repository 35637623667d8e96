"""Decoding: the rules that both engines keep, and the eager engine."""

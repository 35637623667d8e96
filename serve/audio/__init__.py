"""Encode audio: formats, and speed without a change of pitch."""

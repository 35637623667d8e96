"""Transcribe a rendered line and count its wrong words."""

"""Shared by the commands for scripts and captions: the backend, the cast, and the saved lines."""

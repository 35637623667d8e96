"""Word errors of the demo voice on everyday texts. See ``__main__`` for the command."""

"""Wrong words before and after the word check. See ``__main__`` for the command."""

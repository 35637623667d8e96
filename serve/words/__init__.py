"""Compute word times in subprocesses: the server's GIL is shared with the model threads."""

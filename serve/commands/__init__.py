"""One module per command, with ``add_arguments``, ``check`` and ``run`` (see ``serve/cli.py``), and what they share.

A module imports only Python's own packages when it is imported, and the engine when it runs.
"""

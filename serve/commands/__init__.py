"""One module per command, with ``add_arguments``, ``check`` and ``run`` (see ``serve/cli.py``).

What they share is in ``serve/terminal/`` and ``serve/scripts/``. A module imports only Python's own packages when it
is imported, and the engine when it runs.
"""

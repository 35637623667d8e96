"""One module per command, which ``serve/cli.py`` imports by its name. Each has:

- ``add_arguments(parser)``: adds the command's options.
- ``check(parser, options)``: checks them without a model; ``parser.error`` for bad input.
- ``run(options, console)``: runs; ValueError for bad input.

``serve/terminal/help.json`` has the texts of ``--help``; ``serve/terminal/`` and ``serve/script_backend.py`` have
shared code. A module imports only Python's own packages at import time, and the engine when it runs.
"""

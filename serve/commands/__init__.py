"""One module per command, which ``serve/cli.py`` imports by its name. Each has:

- ``add_arguments(parser)``: adds the command's options.
- ``check(parser, options)``: checks what needs no model, with ``parser.error`` for bad input.
- ``run(options, console)``: runs, and returns the exit code if that is not 0; ValueError for bad input.

The texts of ``--help`` are in ``serve/terminal/help.json``. What commands share is in ``serve/terminal/`` and
``serve/scripts/``. A module imports only Python's own packages when it is imported, and the engine when it runs.
"""

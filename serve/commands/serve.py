"""``serve``: start the speech server (``serve/process/server.py``)."""

import argparse

from ..logs import start_log
from ..terminal.console import Console
from ..terminal.engine import find_adapters, find_checkpoint, folders_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ..process.server import add_arguments as add_server

    add_server(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """The server checks its options itself, before it loads anything."""


def run(options: argparse.Namespace, console: Console) -> None:
    folders = folders_of(options)
    if options.voices is None and folders.library.folder.is_dir():
        options.voices = folders.library.folder
    if options.checkpoint is not None:
        options.checkpoint = find_checkpoint(options, console)
    options.lora = [[str(path), strength] for path, strength in find_adapters(options.lora, folders)]
    start_log(console.err)
    try:
        if options.ray:
            from ..process.ray_server import run_ray

            run_ray(options)
        else:
            from ..process.server import read_options, run_server

            run_server(read_options(options))
    except OSError as error:
        raise ValueError(
            f"cannot listen on {options.host} port {options.port} ({error.strerror}): choose another"
        ) from error

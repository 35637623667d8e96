"""``serve``: start the speech server (``serve/process/server.py``)."""

import argparse

from ..process.server import add_arguments as add_arguments
from ..process.server import read_options, run_server
from ..terminal.console import Console, start_log
from ..terminal.engine import find_adapters, find_checkpoint, folders_of


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """``read_options`` checks them."""


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
            run_server(read_options(options))
    except OSError as error:
        where = f"{options.host} port {options.port}"
        raise ValueError(f"cannot listen on {where} ({error.strerror}): choose another") from error

"""``design``: a description to a saved voice."""

from __future__ import annotations

import argparse

from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import folders_of, load_synthesizer
from ..terminal.parser import examples
from .clone import add_saving, choose_path, save

EPILOG = examples(
    '"A calm old man with a deep voice." --name Sailor --checkpoint Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("description", help="the voice in words, e.g. 'a calm old man with a deep voice'")
    add_saving(parser)
    arguments.add_model(parser)


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with an error for a voice without a place to be saved."""
    if not options.name and not options.out:
        parser.error("the voice has no name: give one with --name, or a file with --out")
    if not options.description.strip():
        parser.error("the description is empty: say what the voice should be like")


def run(options: argparse.Namespace, console: Console) -> None:
    """Make the voice; the path of its file goes to stdout."""
    path = choose_path(options, folders_of(options), options.name or "")
    model = load_synthesizer(options, console).model
    from ...morph.voice.create import design_voice

    save(design_voice(model, options.description), path, console)

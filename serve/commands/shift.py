"""``voices shift``: a voice with a mood, from the difference of two others."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...morph.options import SHIFT_STRENGTHS
from ..terminal import arguments
from ..terminal.config import read_config
from ..terminal.console import Console
from ..terminal.engine import find_checkpoint, folders_of, load_synthesizer
from ..terminal.folders import Folders
from ..terminal.sound import read_recording
from .clone import VOICE_FILE, choose_path, save

if TYPE_CHECKING:
    from ...morph.model.model import Model
    from ...morph.voice.voice import Voice

EXAMPLE = '"Anna (angry)" --of Anna --toward "Ben angry" --away "Ben calm" --strength 1.2'
A_VOICE = "a saved voice, its file, a recording, or a speaker of the checkpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is shifted, and where to."""
    parser.add_argument("name", metavar="NAME", help="of the new voice")
    parser.add_argument(
        "--of", required=True, type=arguments.filled, metavar="VOICE", help=f"{A_VOICE}; needed"
    )
    for name, about in (
        ("--toward", "that have the mood"),
        ("--away", "that do not, best of the same speakers"),
    ):
        parser.add_argument(
            name,
            required=True,
            nargs="+",
            type=arguments.filled,
            metavar="VOICE",
            help=f"one or more {about}; their mean is taken; needed",
        )
    parser.add_argument(
        "--strength",
        type=arguments.number(*SHIFT_STRENGTHS),
        default=1.0,
        help="how often the difference is added, -2 to 3; below 0 goes the other way",
    )
    arguments.add_switch(parser, "--overwrite", "replace another voice of this name")
    parser.set_defaults(out=None)
    arguments.add_model(parser)


def run(options: argparse.Namespace, console: Console) -> None:
    """Save the voice; the model is loaded only for recordings and presets."""
    folders = folders_of(options)
    path = choose_path(options, folders, options.name)
    check_known([options.of, *options.toward, *options.away], folders, find_checkpoint(options, console))
    from ...morph.voice.blend import NAMED
    from ...morph.voice.shift import Shift, shift_voice

    model = cache(lambda: load_synthesizer(options, console).model)
    base, *toward = find_voices([options.of, *options.toward], folders, model)
    away = find_voices(options.away, folders, model)
    needs_model = any(voice.kind in NAMED for voice in (base, *toward, *away))
    made = shift_voice(base, Shift(toward, away, options.strength), model() if needs_model else None)
    save(made, path, console)
    console.note(f"made of: {made.recipe}")


def check_known(words: Sequence[str], folders: Folders, checkpoint: Path) -> None:
    """Raise ValueError for a word that is no voice, before the checkpoint in a folder is loaded."""
    config = read_config(checkpoint)
    known = [*folders.library.names(), *(() if config is None else config.speakers)]
    for word in words:
        if not os.path.isfile(word) and word.casefold() not in map(str.casefold, known):
            raise ValueError(
                f"voice {word!r} is neither a file, a saved voice nor a speaker of {checkpoint.name}: choose one of "
                f"{', '.join(known) or 'none'}"
            )


def find_voices(words: Sequence[str], folders: Folders, model: Callable[[], Model]) -> list[Voice]:
    """Return voices, each named as ``A_VOICE`` says; ``model`` returns the checkpoint, where it is needed."""
    names = folders.library.names()
    return [_find(word, names, folders, model) for word in words]


def _find(word: str, names: Sequence[str], folders: Folders, model: Callable[[], Model]) -> Voice:
    from ...morph.voice.create import CloneOptions, clone_voice, preset_voice
    from ...morph.voice.file import load_voice
    from ...morph.voice.recording import clone_recording

    if os.path.isfile(word):
        path = Path(word)
        if path.suffix == VOICE_FILE:
            return load_voice(path)
        return clone_voice(model(), *read_recording(path), CloneOptions(name=path.stem))
    if word in names:
        return folders.library.load(word, lambda recording: clone_recording(model(), recording))
    return preset_voice(model(), word)

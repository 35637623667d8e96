"""``voices shift``: save a voice with a mood, from the difference of two others."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...morph.options import SHIFT_STRENGTHS
from ...morph.voice.recording import clone_recording
from ...morph.voice.voice import Voice
from ..terminal import arguments
from ..terminal.console import Console
from ..terminal.engine import find_checkpoint, folders_of, load_synthesizer, read_config
from ..terminal.folders import Folders
from ..terminal.sound import read_recording
from .clone import VOICE_FILE, choose_path, save

if TYPE_CHECKING:
    from ...morph.model.model import Model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    needed: dict[str, Any] = {"required": True, "type": arguments.filled, "metavar": "VOICE"}
    parser.add_argument("--of", **needed)
    parser.add_argument("--toward", nargs="+", **needed)
    parser.add_argument("--away", nargs="+", **needed)
    parser.add_argument("--strength", type=arguments.number(*SHIFT_STRENGTHS), default=1.0)
    arguments.add_switch(parser, "--overwrite")
    parser.set_defaults(out=None)


def run(options: argparse.Namespace, console: Console) -> None:
    """Save the voice; the model is loaded only for recordings and presets."""
    folders, words = folders_of(options), [options.of, *options.toward, *options.away]
    path = choose_path(options, folders, options.name)
    check_known(words, folders.library.sources(), find_checkpoint(options, console))
    from ...morph.voice.blend import NAMED, Shift, shift_voice

    model = cache(lambda: load_synthesizer(options, console).model)
    base, *others = (find_voice(word, folders, model) for word in words)
    shift = Shift(others[: len(options.toward)], others[len(options.toward) :], options.strength)
    needs_model = any(voice.kind in NAMED for voice in (base, *others))
    made = shift_voice(base, shift, model() if needs_model else None)
    save(made, path, console)
    console.note(f"made of: {made.recipe}")


def check_known(words: Collection[str], saved: Collection[str], checkpoint: Path) -> None:
    """Raise ValueError for an unknown voice, before the checkpoint in a folder is loaded."""
    config = read_config(checkpoint)
    known = [*saved, *(() if config is None else config.speakers)]
    for word in words:
        if not os.path.isfile(word) and word.casefold() not in map(str.casefold, known):
            raise ValueError(
                f"voice {word!r} is neither a file, a saved voice nor a speaker of {checkpoint.name}: choose one of "
                f"{', '.join(known) or 'none'}"
            )


def find_voice(word: str, folders: Folders, model: Callable[[], Model]) -> Voice:
    """Return the voice that a word of ``--of`` names; ``model`` loads the checkpoint if needed."""
    from ...morph.voice.create import CloneOptions, clone_voice, preset_voice
    from ...morph.voice.library import load_source

    path = Path(word) if os.path.isfile(word) else folders.library.sources().get(word)
    if path and os.path.isfile(word) and path.suffix != VOICE_FILE:
        return clone_voice(model(), *read_recording(path), CloneOptions(name=path.stem))
    if path:
        return load_source(path, lambda recording: clone_recording(model(), recording))
    return preset_voice(model(), word)

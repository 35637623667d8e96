"""Who speaks in a script: the cast of the command line, the saved voices and the checkpoint's speakers, by name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...morph.text.names import name_key
from ...morph.voice.cast import GIVEN, PRESET, SAVED, Cast, Part, join_parts, named_parts
from ...morph.voice.voice import Voice
from ..terminal.engine import folders_of, make_voice, saved_voice
from ..terminal.folders import Folders

if TYPE_CHECKING:
    import numpy as np

    from ...morph.model.model import Model
    from ..remote.facts import ServerFacts

NARRATOR = "NARRATOR"


def find_name(cast: Cast, name: str) -> str:
    """Return a name in upper or lower case as the cast has it; "" is the narrator. ValueError if there is none."""
    spelled = cast.spelled(name or NARRATOR)
    if spelled is None:
        known = ", ".join(sorted(cast))
        raise ValueError(
            f"voice {name or NARRATOR!r} is not in the cast: choose one of {known}, or add --cast"
        )
    return spelled


def make_cast(
    speakers: Sequence[str],
    options: argparse.Namespace,
    recording: tuple[np.ndarray, int] | None,
    model: Callable[[], Model],
) -> Cast:
    """Return everybody that a script may name: ``--cast``, the narrator, saved voices, the checkpoint's speakers.

    Of names that are the same (see ``names.name_key``) the first one is taken. The narrator is the voice that the
    options choose.

    Args:
        speakers: of the checkpoint.
        options: of the command line.
        recording: that ``--reference`` names.
        model: returns the checkpoint, which only voices need: the names are known before it is loaded.

    Raises:
        ValueError: for a name that ``--cast`` has twice, or if there is nobody.
    """
    folders = folders_of(options)

    def preset(name: str) -> Voice:
        from ...morph.voice.create import preset_voice

        return preset_voice(model(), name)

    def choose(voice: str) -> Voice:
        if voice.casefold() in [speaker.casefold() for speaker in speakers]:
            return preset(voice)
        return saved_voice(voice, folders, model())

    given = check_parts(options.cast)
    narrator = {}
    if speakers or options.voice or recording or options.describe:
        named = options.voice or options.speaker or ""
        narrator = {NARRATOR: Part(GIVEN, lambda: make_voice(model(), options, recording), named)}
    return _join(
        {name: Part(GIVEN, partial(choose, voice), voice) for name, voice in given.items()},
        narrator,
        named_parts(SAVED, folders.library.names(), lambda name: saved_voice(name, folders, model())),
        named_parts(PRESET, speakers, preset),
    )


def server_cast(server: ServerFacts, folders: Folders, options: argparse.Namespace) -> Cast:
    """Return everybody whom a script may name where a server speaks: as ``make_cast``, with the server's own voices.

    Raises:
        ValueError: for a name that ``--cast`` has twice, or if there is nobody.
    """

    def choose(voice: str) -> Voice:
        if voice.casefold() in [name.casefold() for name in server.voices]:
            spelled = server.speaker(voice)
            return Voice("preset", server.size, name=spelled, speaker=spelled)
        return saved_voice(voice, folders)

    given = check_parts(options.cast)
    narrator = {}
    if options.describe:
        words = options.describe.strip()  # the server reads them with each line
        designed = Voice("design", server.size, name="designed voice", instruct=words)
        narrator = {NARRATOR: Part(GIVEN, lambda: designed)}
    elif name := options.voice or options.speaker or next(iter(server.voices), ""):
        narrator = {NARRATOR: Part(GIVEN, lambda: choose(name), name)}
    return _join(
        {name: Part(GIVEN, partial(choose, voice), voice) for name, voice in given.items()},
        narrator,
        named_parts(SAVED, folders.library.voices(), choose),
        named_parts(PRESET, server.voices, choose),
    )


def _join(*groups: Mapping[str, Part]) -> Cast:
    if not (cast := join_parts(*groups)):
        raise ValueError("no voice is set: choose one with --cast NAME=VOICE, --voice or --reference")
    return cast


def check_parts(parts: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the names and voices of ``--cast``; ValueError for a name that is there twice."""
    given: dict[str, str] = {}
    for name, voice in parts:
        if name_key(name) in map(name_key, given):
            raise ValueError(f"--cast has {name!r} twice: keep one")
        given[name] = voice
    return given

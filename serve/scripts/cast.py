"""The cast of a script by name: ``--cast``, saved voices and the checkpoint's speakers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...morph.text.names import name_key
from ...morph.voice.cast import GIVEN, PRESET, SAVED, Cast, Part, join_parts, named_parts
from ...morph.voice.voice import Voice
from ..terminal.engine import folders_of, make_voice, saved_voice

if TYPE_CHECKING:
    import numpy as np

    from ...morph.model.model import Model
    from ..remote.facts import ServerFacts

NARRATOR = "NARRATOR"
Named = tuple[Iterable[str], Callable[[str], Voice]]
"""Names of voices, and what makes the voice of a name."""


def find_name(cast: Cast, name: str) -> str:
    """Return a name as the cast spells it, in any case; "" is the narrator. ValueError if there is none."""
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

    The first of equal names (``names.name_key``) counts; the options choose the narrator's voice. ``model`` returns the
    checkpoint when a voice needs it: names are known earlier. ValueError for a name twice in ``--cast``, or for nobody.
    """
    folders = folders_of(options)

    def preset(name: str) -> Voice:
        from ...morph.voice.create import preset_voice

        return preset_voice(model(), name)

    narrator = None
    if speakers or options.voice or recording or options.describe:
        named = options.voice or options.speaker or ""
        narrator = Part(GIVEN, lambda: make_voice(model(), options, recording), named)
    saved = folders.library.sources(), lambda name: saved_voice(name, folders, model())
    return _join(options.cast, narrator, saved, (speakers, preset))


def server_cast(server: ServerFacts, options: argparse.Namespace) -> Cast:
    """Return the cast if a server speaks: as ``make_cast``, with the server's own voices."""
    folders = folders_of(options)

    def choose(voice: str) -> Voice:
        if voice.casefold() in map(str.casefold, server.voices):
            spelled = server.speaker(voice)
            return Voice("preset", server.size, name=spelled, speaker=spelled)
        return saved_voice(voice, folders)

    narrator = None
    if options.describe:  # the server reads the words with each line
        designed = Voice("design", server.size, name="designed voice", instruct=options.describe.strip())
        narrator = Part(GIVEN, lambda: designed)
    elif name := options.voice or options.speaker or next(iter(server.voices), ""):
        narrator = Part(GIVEN, partial(choose, name), name)
    return _join(options.cast, narrator, (folders.library.voices(), choose), (server.voices, choose))


def _join(given: Iterable[tuple[str, str]], narrator: Part | None, saved: Named, presets: Named) -> Cast:
    speakers = set(map(str.casefold, presets[0]))
    parts: dict[str, Part] = {}
    for name, voice in given:
        if name_key(name) in map(name_key, parts):
            raise ValueError(f"--cast has {name!r} twice: keep one")
        make = presets[1] if voice.casefold() in speakers else saved[1]
        parts[name] = Part(GIVEN, partial(make, voice), voice)
    own = {} if narrator is None else {NARRATOR: narrator}
    cast = join_parts(parts, own, named_parts(SAVED, *saved), named_parts(PRESET, *presets))
    if not cast:
        raise ValueError("no voice is set: choose one with --cast NAME=VOICE, --voice or --reference")
    return cast

"""Who speaks in a script: the cast of the command line, the saved voices and the checkpoint's speakers, by name."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...morph.text.names import name_key
from .engine import make_voice, saved_voice

if TYPE_CHECKING:
    import numpy as np

    from ...morph.model.model import Model
    from ...morph.voice.voice import Voice
    from ..remote.facts import ServerFacts
    from .folders import Folders

NARRATOR = "NARRATOR"
RESERVED = ":\uff1a[]#\n\r"  # these have a meaning in scripts

MakeVoice = Callable[[], "Voice"]


def part(word: str) -> tuple[str, str]:
    """Read ``NAME=VOICE``, for argparse."""
    name, equals, voice = (piece.strip() for piece in word.partition("="))
    if not (name and equals and voice):
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME=VOICE, e.g. ANNA=heart")
    if any(char in name for char in RESERVED):
        raise argparse.ArgumentTypeError(
            f"{name!r} contains one of : [ ] #, which scripts reserve: remove it"
        )
    return name, voice


@dataclass(frozen=True)
class Cast(Mapping[str, "Voice"]):
    """Voices by name; each is loaded when a script first names it.

    Args:
        makers: what makes each voice.
    """

    makers: Mapping[str, MakeVoice]
    _made: dict[str, Voice] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Voice:
        if name not in self._made:
            self._made[name] = self.makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)

    def find(self, name: str) -> Voice:
        """Return the voice of a name in upper or lower case; "" is the narrator. ValueError if there is none."""
        spelled = _spelled(name or NARRATOR, self.makers)
        if spelled not in self.makers:
            known = ", ".join(sorted(self.makers))
            raise ValueError(
                f"voice {name or NARRATOR!r} is not in the cast: choose one of {known}, or add --cast"
            )
        return self[spelled]


def make_cast(
    model: Model,
    folders: Folders,
    options: argparse.Namespace,
    recording: tuple[np.ndarray, int] | None,
) -> Cast:
    """Return everybody that a script may name: ``--cast``, the narrator, saved voices, the checkpoint's speakers.

    Of names that are the same (see ``names.name_key``) the first one is taken. The narrator is the voice that the
    options choose.

    Raises:
        ValueError: for a name that ``--cast`` has twice, or a voice of it that does not exist.
    """
    given = check_parts(options.cast)
    found: dict[str, MakeVoice] = {name: _choose(model, folders, voice) for name, voice in given.items()}
    if model.speakers or options.voice or recording or options.describe:
        found.setdefault(_spelled(NARRATOR, found), lambda: make_voice(model, options, recording))
    for name in folders.library.voices():
        if not any(char in name for char in RESERVED):
            found.setdefault(_spelled(name, found), _choose(model, folders, name))
    for speaker in model.speakers:
        found.setdefault(_spelled(speaker, found), _choose(model, folders, speaker))
    return Cast(found)


def server_cast(server: ServerFacts, folders: Folders, options: argparse.Namespace) -> Cast:
    """Return everybody whom a script may name where a server speaks: as ``make_cast``, with the server's own voices.

    Raises:
        ValueError: for a name that ``--cast`` has twice.
    """

    def choose(voice: str) -> MakeVoice:
        if voice.casefold() in [name.casefold() for name in server.voices]:
            return lambda: preset_at(server, voice)
        return lambda: saved_voice(voice, folders)

    given = check_parts(options.cast)
    found: dict[str, MakeVoice] = {name: choose(voice) for name, voice in given.items()}
    if options.describe:
        found.setdefault(_spelled(NARRATOR, found), lambda: design_at(server, options.describe))
    elif name := options.voice or options.speaker or next(iter(server.voices), ""):
        found.setdefault(_spelled(NARRATOR, found), choose(name))
    for name in (*folders.library.voices(), *server.voices):
        if not any(char in name for char in RESERVED):
            found.setdefault(_spelled(name, found), choose(name))
    return Cast(found)


def preset_at(server: ServerFacts, name: str) -> Voice:
    """Return one of the server's own voices; ValueError if it has none such."""
    from ...morph.voice.voice import Voice

    spelled = server.speaker(name)
    return Voice("preset", server.size, name=spelled, speaker=spelled)


def design_at(server: ServerFacts, description: str) -> Voice:
    """Return a voice from a description, which the server reads with each line."""
    from ...morph.voice.voice import Voice

    return Voice("design", server.size, name="designed voice", instruct=description.strip())


def check_parts(parts: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the names and voices of ``--cast``; ValueError for a name that is there twice."""
    given: dict[str, str] = {}
    for name, voice in parts:
        if _spelled(name, given) in given:
            raise ValueError(f"--cast has {name!r} twice: keep one")
        given[name] = voice
    return given


def _spelled(name: str, known: Mapping[str, object]) -> str:
    """Return a name as it is known already, in upper or lower case (see ``names.name_key``)."""
    return next((other for other in known if name_key(other) == name_key(name)), name)


def _choose(model: Model, folders: Folders, voice: str) -> MakeVoice:
    """Return what makes a voice: a speaker of the checkpoint, or a saved one by its name or file."""
    from ...morph.voice.create import preset_voice

    if voice.casefold() in [speaker.casefold() for speaker in model.speakers]:
        return lambda: preset_voice(model, voice)
    return lambda: saved_voice(voice, folders)

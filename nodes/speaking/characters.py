"""A script's characters: their names, and which voice each has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...morph.runtime.atomic_file import FileState
from ...morph.text.names import name_key
from ...morph.text.scripts.script import NARRATOR, RESERVED, split_mood
from ...morph.voice.cast import PRESET, SAVED, Cast, given_characters, join_characters, named_characters
from ...morph.voice.library import source_states
from ...morph.voice.voice import Voice

if TYPE_CHECKING:
    from ..models.values import AnyModel


def check_character(name: str) -> str:
    """Return a character's name, stripped; ValueError if no script line could refer to it."""
    name = name.strip()
    if not name_key(name):
        raise ValueError("name is empty: type the character's name")
    if any(char in name for char in RESERVED) or len(name.splitlines()) > 1:
        raise ValueError(f"name {name!r} contains one of : [ ] # or a line break, which scripts reserve: remove it")
    return name


def read_names(text: str) -> list[str]:
    """Return the names in a text's lines; ValueError for none, a wrong one, or equal ones (``names.name_key``)."""
    names = [check_character(line) for line in text.splitlines() if line.strip()]
    if not names:
        raise ValueError("names is empty: type one character's name per line")
    return list(join_casts({}, ((name, None) for name in names)))


def join_casts(cast: Mapping[str, Any], more: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a cast with more characters; ValueError if a name comes twice (see ``names.name_key``)."""
    joined, known = dict(cast), set(map(name_key, cast))
    for name, voice in more:
        if name_key(name) in known:
            raise ValueError(f"name {name!r} is already in the cast: give each character a different name")
        known.add(name_key(name))
        joined[name] = voice
    return joined


def assign_voices(names: Sequence[str], voices: Mapping[int, Any]) -> dict[str, Any]:
    """Return the voice of each name: that with its place, from 1; ValueError if a name or a voice has no partner."""
    for number, name in enumerate(names, 1):
        if number not in voices:
            raise ValueError(f"voice_{number} is not connected: connect {name}'s voice, or remove the name from names")
    if unnamed := [number for number in sorted(voices) if number > len(names)]:
        fix = f"type the character's name as line {unnamed[0]} of names, or disconnect it"
        raise ValueError(f"voice_{unnamed[0]} has no name: {fix}")
    return {name: voices[number] for number, name in enumerate(names, 1)}


def saved_states(text: str | None = None) -> list[tuple[str, tuple[FileState, ...]]]:
    """Return the saved voices that a script may name, with the states of their files.

    A voice counts if its name, or the mood in its name, is anywhere in the text, and the narrator's always does: a few
    too many count, and none too few. With None, a script that another node gives later, all count.
    """
    from ..folders import voice_library

    folded = None if text is None else name_key(text)
    return [
        (name, source_states(path))
        for name, path in voice_library().sources().items()
        if folded is None or any(key == NARRATOR or key in folded for key in map(name_key, split_mood(name) or (name,)))
    ]


def find_characters(model: AnyModel, cast: Mapping[str, Voice] | None) -> Cast:
    """Return everybody whom a script may name: the cast, then the saved voices, then the model's own speakers.

    Without a cast, the model's default voice is the narrator. A voice that is found by its name is made when a line
    first needs it.
    """
    from ..folders import voice_library
    from .common import default_narrator

    library, given = voice_library(), cast or {}
    found = join_characters(
        given_characters(given),
        named_characters(SAVED, library.sources(), lambda name: library.load(name, model.clone_recording)),
        named_characters(PRESET, model.speakers(), lambda name: model.preset_voice(name, "")),
        {} if given else {NARRATOR.upper(): default_narrator(model)},
    )
    return found.spoken_by({name: voice.by for name, voice in given.items() if voice.by is not None})

"""The cast of a script: voices by name, each made when a line first names it.

A voice named ``Anna (angry)`` is a mood of Anna, for lines ``ANNA (angry): text``. A character with the voice Anna
has Anna's moods too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..text.names import name_key
from ..text.scripts.script import RESERVED, split_mood, with_mood
from .voice import Voice

GIVEN, SAVED, PRESET = "cast", "saved voice", "preset"  # where a voice came from


@dataclass(frozen=True)
class Character:
    """A character; its voice is made when a line needs it."""

    origin: str  # GIVEN, SAVED or PRESET
    make: Callable[[], Voice]
    voice: str = ""  # its name, if known and perhaps not the character's


@dataclass(frozen=True)
class Cast(Mapping[str, Voice]):
    """Voices by name; no two names are the same (``names.name_key``)."""

    characters: Mapping[str, Character]
    _made: dict[str, Voice] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Voice:
        if name not in self._made:
            self._made[name] = self.characters[name].make()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.characters)

    def __len__(self) -> int:
        return len(self.characters)

    def spelled(self, name: str) -> str | None:
        """Return a name as the cast spells it, or None."""
        return next((known for known in self.characters if name_key(known) == name_key(name)), None)

    def spoken_by(self, own: Mapping[str, Any]) -> Cast:
        """Return a cast whose characters (with moods) or single moods have the backends ``own`` (``Voice.by``)."""
        known = {name_key(name): by for name, by in own.items()}
        characters = dict(self.characters)
        for name, character in characters.items():
            speaker, *_ = split_mood(name) or (name,)
            if (by := known.get(name_key(name), known.get(name_key(speaker)))) is not None:
                characters[name] = replace(character, make=partial(_make, character, by))
        return Cast(characters)

    def describe_found(self) -> str:
        """Return a sentence on where the used voices that were not given were found; "" for none."""
        found = [
            f"{name} ({' '.join(filter(None, (character.origin, character.voice)))})"
            for name in self._made
            if (character := self.characters[name]).origin != GIVEN
        ]
        return f"Voices found by name: {', '.join(found)}." if found else ""


def _make(character: Character, by: Any) -> Voice:
    voice = character.make()
    return voice if voice.by is by else replace(voice, by=by)  # prompt caches use the voice's identity


def join_characters(*groups: Mapping[str, Character]) -> Cast:
    """Return the cast of several groups; of equal names the first counts."""
    by_key: dict[str, tuple[str, Character]] = {}
    for group in groups:
        for name, character in group.items():
            by_key.setdefault(name_key(name), (name, character))
    characters = dict(by_key.values())
    return Cast({**characters, **_moods_of(characters, by_key)})


def _moods_of(characters: Mapping[str, Character], keys: Collection[str]) -> dict[str, Character]:
    """Return the moods that characters have through their voices, except those in the cast by name (``keys``)."""
    moods: dict[str, list[tuple[str, str]]] = {}
    for name in characters:
        if split := split_mood(name):
            moods.setdefault(name_key(split[0]), []).append((name, split[1]))
    found: dict[str, Character] = {}
    for name, character in characters.items():
        for known, mood in moods.get(name_key(character.voice), ()) if character.voice else ():
            if name_key(own := with_mood(name, mood)) not in keys:
                found[own] = replace(characters[known], voice=known)
    return found


def given_characters(voices: Mapping[str, Voice]) -> dict[str, Character]:
    return {name: Character(GIVEN, lambda voice=voice: voice, voice.name) for name, voice in voices.items()}  # type: ignore[misc]


def named_characters(origin: str, names: Iterable[str], make: Callable[[str], Voice]) -> dict[str, Character]:
    """Return the characters of these voice names, except names that no script line can have."""
    usable = [name for name in names if not any(char in name for char in RESERVED)]
    return {name: Character(origin, partial(make, name)) for name in usable}

"""The cast of a script: voices by name, each made when a line first names it.

A voice named ``Anna (angry)`` is a mood of Anna, for lines ``ANNA (angry): text``. A character with the voice Anna
has Anna's moods too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..text.names import name_key
from ..text.scripts.script import RESERVED, split_mood, with_mood
from .voice import Voice

GIVEN, SAVED, PRESET = "cast", "saved voice", "preset"  # where a voice came from


@dataclass(frozen=True)
class Part:
    """A character."""

    origin: str  # GIVEN, SAVED or PRESET
    make: Callable[[], Voice]
    voice: str = ""  # its name, if known and perhaps not the character's


@dataclass(frozen=True)
class Cast(Mapping[str, Voice]):
    """Voices by name; no two names are the same (``names.name_key``)."""

    parts: Mapping[str, Part]
    _made: dict[str, Voice] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Voice:
        if name not in self._made:
            self._made[name] = self.parts[name].make()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)

    def spelled(self, name: str) -> str | None:
        """Return a name as the cast spells it, or None."""
        return next((known for known in self.parts if name_key(known) == name_key(name)), None)

    def spoken_by(self, own: Mapping[str, Any]) -> Cast:
        """Return a cast whose characters (with moods) or single moods have the backends ``own`` (``Voice.by``)."""
        known = {name_key(name): by for name, by in own.items()}
        parts = dict(self.parts)
        for name, part in self.parts.items():
            mood = split_mood(name)
            for key in map(name_key, (name, mood[0]) if mood else (name,)):
                if key in known:
                    parts[name] = _spoken_by(part, known[key])
                    break
        return Cast(parts)

    def describe_found(self) -> str:
        """Return a sentence on where the used voices that were not given were found; "" for none."""
        found = [
            f"{name} ({' '.join(filter(None, (part.origin, part.voice)))})"
            for name in self._made
            if (part := self.parts[name]).origin != GIVEN
        ]
        return f"Voices found by name: {', '.join(found)}." if found else ""


def _spoken_by(part: Part, by: Any) -> Part:
    def make() -> Voice:
        voice = part.make()
        return voice if voice.by is by else replace(voice, by=by)  # prompt caches use the voice's identity

    return replace(part, make=make)


def join_parts(*groups: Mapping[str, Part]) -> Cast:
    """Return the cast of several groups; of equal names the first counts."""
    keys: set[str] = set()
    parts: dict[str, Part] = {}
    for group in groups:
        for name, part in group.items():
            if (key := name_key(name)) not in keys:
                keys.add(key)
                parts[name] = part
    return Cast({**parts, **_moods_of(parts, keys)})


def _moods_of(parts: Mapping[str, Part], keys: Collection[str]) -> dict[str, Part]:
    """Return the moods that characters have through their voices, except those in the cast by name (``keys``)."""
    moods: dict[str, list[tuple[str, str]]] = {}
    for name in parts:
        if split := split_mood(name):
            moods.setdefault(name_key(split[0]), []).append((name, split[1]))
    found: dict[str, Part] = {}
    for name, part in parts.items():
        for known, mood in moods.get(name_key(part.voice), ()) if part.voice else ():
            if name_key(own := with_mood(name, mood)) not in keys:
                found[own] = replace(parts[known], voice=known)
    return found


def given_parts(voices: Mapping[str, Voice]) -> dict[str, Part]:
    return {name: Part(GIVEN, lambda voice=voice: voice, voice.name) for name, voice in voices.items()}  # type: ignore[misc]


def named_parts(origin: str, names: Iterable[str], make: Callable[[str], Voice]) -> dict[str, Part]:
    """Return the characters of these voice names, except names that no script line can have."""
    usable = [name for name in names if not any(char in name for char in RESERVED)]
    return {name: Part(origin, lambda name=name: make(name)) for name in usable}  # type: ignore[misc]

"""Validate what a server sends: it may be another program, a later version of this one, or lie.

Numbers are within limits, names are plain text, and words for people have no control characters. Anything else is a
ValueError that names the field; ``connection.py`` makes it a sentence with the server's name.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...morph.speech.takes import ENDS, STOPPED
from ...morph.words.timing import WordTime
from ..plain_text import is_plain, one_line

DEEPEST = 50  # levels of lists and objects; an OpenAPI document has about 15
LONGEST_NAME = 255  # characters: of voices, languages, checkpoints
LONGEST_NOTE = 1000
LONGEST_TEXT = 400_000  # of a line as spoken: figures are longer as words
MOST_NAMES = 10_000
MOST_FRAMES = 10**7  # nine days
MOST_PIECES = 10**6
MOST_WORDS = LONGEST_TEXT
MOST_S = 10**6  # of a line, in seconds
LOWEST_RATE, HIGHEST_RATE = 8000, 192_000  # Hz
MOST_DIGITS = 12  # of a number in a header
NEEDED: Any = object()  # the default of a field that must be there


def parse(content: bytes) -> Any:
    """Return JSON; ValueError if it is invalid, or deeper than DEEPEST levels."""
    try:
        value = json.loads(content)
    except RecursionError:
        raise ValueError("it has too many levels") from None
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return value
    raise ValueError("it has too many levels")


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def header_number(word: str | None) -> int | None:
    """Return a header's whole number; None if it is missing or invalid."""
    if word is None or len(word) > MOST_DIGITS or not (word.isascii() and word.isdigit()):
        return None
    return int(word)


def check_name(said: Any, what: str) -> str:
    """Return a name that is safe in requests; ValueError for another value."""
    if not isinstance(said, str) or len(said) > LONGEST_NAME or not is_plain(said):
        raise ValueError(
            f"{what} is {reprlib.repr(said)}, not a name of at most {LONGEST_NAME} plain characters"
        )
    return said


def check_rate(said: Any, what: str = "sample_rate") -> int:
    return _whole(said, what, LOWEST_RATE, HIGHEST_RATE)


def _whole(said: Any, what: str, low: int, high: int) -> int:
    is_whole = type(said) is int or (isinstance(said, float) and math.isfinite(said) and said.is_integer())
    if not is_whole or not low <= said <= high:
        raise ValueError(f"{what} is {reprlib.repr(said)}, not a whole number from {low} to {high}")
    return int(said)


@dataclass(frozen=True)
class Fields:
    """An object of a server's JSON, checked when fields are read: ValueError if one is missing or invalid."""

    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.values, dict):
            raise ValueError(f"{reprlib.repr(self.values)} stands where an object should")

    def _get(self, name: str, default: Any) -> Any:
        if name not in self.values and default is NEEDED:
            raise ValueError(f"{name} is missing")
        return self.values.get(name, default)

    def string(self, name: str, default: str = NEEDED) -> str:
        said = self._get(name, default)
        if not isinstance(said, str):
            raise ValueError(f"{name} is {reprlib.repr(said)}, not a text")
        return said

    def name(self, name: str, default: str = NEEDED) -> str:
        return check_name(self._get(name, default), name)

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of names; () if it is missing."""
        return tuple(check_name(one, f"{name}[{place}]") for place, one in enumerate(self.items(name)))

    def items(self, name: str) -> list[Any]:
        """Return a list; [] if it is missing."""
        said = self._get(name, [])
        if not isinstance(said, list) or len(said) > MOST_NAMES:
            raise ValueError(f"{name} is {reprlib.repr(said)}, not a list of at most {MOST_NAMES}")
        return said

    def whole(self, name: str, low: int, high: int, default: int = NEEDED) -> int:
        return _whole(self._get(name, default), name, low, high)

    def seconds(self, name: str) -> float:
        """Return a time within a line's audio."""
        said = self._get(name, NEEDED)
        if type(said) not in (int, float) or not 0 <= said <= MOST_S:  # NaN compares false
            raise ValueError(f"{name} is {reprlib.repr(said)}, not a time in seconds")
        return float(said)

    def truth(self, name: str, default: bool = NEEDED) -> bool:
        said = self._get(name, default)
        if not isinstance(said, bool):
            raise ValueError(f"{name} is {reprlib.repr(said)}, not true or false")
        return said

    def words(self, name: str, longest: int = LONGEST_NOTE) -> str:
        """Return words for people, on one line and cut to a length; "" if they are missing, or null."""
        said = self._get(name, None)
        return "" if said is None else one_line(self.string(name))[:longest]

    def all_words(self, name: str) -> tuple[str, ...]:
        listed = [Fields({name: one}).words(name) for one in self.items(name)]
        return tuple(filter(None, listed))


@dataclass(frozen=True)
class LineTold:
    """A server's report on a line; of another program's server nothing is known."""

    ended: str = ""  # one of ``takes.ENDS`` or ``takes.STOPPED``, or ""
    frames: int | None = None  # of 80 ms
    pieces: int = 1
    spoken: str = ""  # the text as spoken; "" if that is the text itself
    notes: tuple[str, ...] = ()  # sentences for the user
    made_by: tuple[str, ...] = ()  # the engine and its settings
    words: tuple[WordTime, ...] = ()


def read_report(said: Any) -> LineTold:
    report = Fields(said)
    ended = report.string("ended", "")
    if ended not in ("", *ENDS, *STOPPED):
        raise ValueError(f"ended is {reprlib.repr(ended)}, not one of {', '.join((*ENDS, *STOPPED))}")
    return LineTold(
        ended,
        report.whole("frames", 0, MOST_FRAMES) if "frames" in report.values else None,
        report.whole("pieces", 0, MOST_PIECES, 1),
        report.words("spoken", LONGEST_TEXT),
        report.all_words("notes"),
        report.all_words("made_by"),
    )


def read_timestamps(said: Any, text: str, after_s: float = 0.0) -> tuple[WordTime, ...]:
    """Return the words of a line, or those after ``after_s``; ValueError for invalid ones."""
    listed = [] if said is None else said
    if not isinstance(listed, list) or len(listed) > MOST_WORDS:
        raise ValueError(f"timestamps is {reprlib.repr(said)}, not a list of at most {MOST_WORDS}")
    words = []
    for word in map(Fields, listed):
        first = word.whole("first_char", 0, len(text))
        last = word.whole("last_char", first, len(text))
        start_s, end_s = word.seconds("start_time"), word.seconds("end_time")
        if not after_s <= start_s <= end_s:
            raise ValueError(f"a word runs from {start_s} to {end_s} s behind one that ends at {after_s} s")
        words.append(WordTime(word.words("word", LONGEST_TEXT), start_s, end_s, first, last))
        after_s = end_s
    return tuple(words)

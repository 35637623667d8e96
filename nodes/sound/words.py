"""The words of spoken lines with their times: the value of the words socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...morph.words.captions import LineWords

if TYPE_CHECKING:
    from ...morph.batch.speaks import Speaks
    from ...morph.speech.lines import Spoken

WITHOUT = (
    "a line has none if it could not be made, or if an earlier version of the pack kept it (Settings, Qwen3-TTS "
    "Morph, remove kept lines)"
)


@dataclass(frozen=True)
class SpokenWords:
    """The value of the words socket."""

    lines: tuple[LineWords, ...]  # with times in one sound; failed lines have no words
    missing: str = ""  # why there is no word at all, and what to do; or ""

    def at(self, starts: Sequence[int], rate: int) -> SpokenWords:
        """Return the words in a track in which each line begins at its own sample of ``starts``."""
        lines = tuple(line.at(start / rate) for line, start in zip(self.lines, starts, strict=True))
        return SpokenWords(lines, self.missing)

    def describe(self) -> str:
        """Return the report's line about lines without words, and why; "" if all have words."""
        if self.missing:
            return f"No word times: {self.missing}."
        count = sum(not line.words for line in self.lines)
        return f"No word times for {count} of {len(self.lines)} lines: {WITHOUT}." if count else ""


def words_of(speaks: Speaks, spoken: Sequence[Spoken]) -> SpokenWords:
    """Return the words of lines at their final speed, each line's in its own sound."""
    missing = ""
    try:
        speaks.check_words()
    except ValueError as error:
        missing = str(error)
    lines = tuple(LineWords(() if missing else speaks.words(one), one.report.name) for one in spoken)
    if not any(line.words for line in lines):
        missing = missing or f"no line has word times: {WITHOUT}"
    return SpokenWords(lines, missing)


def check_words(value: object) -> SpokenWords:
    """Return the value of a words input; ValueError for anything else, and if it has no word."""
    if not isinstance(value, SpokenWords):
        raise ValueError(
            f"words is {repr(value)[:40]}: connect the words of Generate Speech, Render Script or Dub Captions"
        )
    if value.missing:
        raise ValueError(f"words is empty: {value.missing}")
    return value

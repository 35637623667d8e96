"""Validate a server's JSON: the server may be another program, a later version of this one, or malicious.

Numbers have limits, names are plain text, and texts have no control characters. Else a ValueError names the field;
``connection.py`` adds the server's name.
"""

from __future__ import annotations

import json
import reprlib
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ...morph.speech.lines import ENDS, STOPPED
from ...morph.words.timing import WordTime
from ...postprocess.checks import check_choice
from ..plain_text import is_plain, one_line

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


def parse(content: bytes) -> Any:
    """Return JSON; ValueError if it is invalid, or too deep for Python."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it has too many levels") from None


def header_number(word: str | None) -> int | None:
    """Return a header's whole number; None if it is missing or invalid."""
    if word is None or len(word) > MOST_DIGITS or not (word.isascii() and word.isdigit()):
        return None
    return int(word)


def _check_plain(name: str) -> str:
    if not is_plain(name):
        raise ValueError("a name has no control characters")
    return name


def _cut(longest: int) -> AfterValidator:
    return AfterValidator(lambda text: one_line(text)[:longest])


NULL_IS_EMPTY = BeforeValidator(lambda text: "" if text is None else text)
Name = Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_check_plain)]
LISTED = Field(max_length=MOST_NAMES, strict=False, fail_fast=True)  # a list becomes a tuple
Names = Annotated[tuple[Name, ...], LISTED]
Note = Annotated[str, NULL_IS_EMPTY, _cut(LONGEST_NOTE)]
Text = Annotated[str, NULL_IS_EMPTY, _cut(LONGEST_TEXT)]
Notes = Annotated[tuple[Note, ...], LISTED]
Frames = Annotated[int, Field(ge=0, le=MOST_FRAMES)]
Rate = Annotated[int, Field(ge=LOWEST_RATE, le=HIGHEST_RATE)]
Seconds = Annotated[float, Field(ge=0, le=MOST_S, allow_inf_nan=False)]


class Reported(BaseModel):
    """An object of a server's JSON. Read it with ``read``; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


AnyReported = TypeVar("AnyReported", bound=Reported)


def read(kind: type[AnyReported], value: Any) -> AnyReported:
    """Return an object of a server; ValueError names its first wrong field in one sentence."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"])) or "the answer"
    if first["type"] == "missing":
        raise ValueError(f"{field} is missing")
    raise ValueError(f"{field} is {reprlib.repr(first['input'])}: {first['msg']}")


class ReportedLine(Reported):
    """A server's report on a line."""

    ended: Annotated[str, AfterValidator(lambda one: check_choice("ended", one, ("", *ENDS, *STOPPED)))] = ""
    frames: Frames | None = None  # of 80 ms
    pieces: Annotated[int, Field(ge=0, le=MOST_PIECES)] = 1
    spoken: Text = ""  # the normalized text; "" if that is the text itself
    notes: Notes = ()  # sentences for the user
    made_by: Notes = ()  # the engine and its settings


NO_REPORT = ReportedLine()  # from another program's server


class ReportedWord(Reported):
    """A word of a line and its time span."""

    word: Text
    start_time: Seconds
    end_time: Seconds
    first_char: Annotated[int, Field(ge=0)]
    last_char: int


class Event(Reported):
    """An event of a line, or the JSON of a part; each type of event has some of the fields."""

    type: str = ""
    audio: str = ""  # base64
    frames: Frames = 0  # of the progress
    expected: Frames = 0
    report: ReportedLine = NO_REPORT
    timestamps: Annotated[tuple[ReportedWord, ...], Field(max_length=MOST_WORDS, strict=False, fail_fast=True)] = ()

    def words(self, text: str, after_s: float = 0.0) -> tuple[WordTime, ...]:
        """Return the words of a line's text, all after ``after_s``; ValueError for impossible ones."""
        for one in self.timestamps:
            if not after_s <= one.start_time <= one.end_time:
                raise ValueError(
                    f"a word runs from {one.start_time} to {one.end_time} s behind one that ends at {after_s} s"
                )
            if not one.first_char <= one.last_char <= len(text):
                raise ValueError(f"last_char is {one.last_char}, no place in a text of {len(text)} characters")
            after_s = one.end_time
        return tuple(
            WordTime(one.word, one.start_time, one.end_time, one.first_char, one.last_char) for one in self.timestamps
        )

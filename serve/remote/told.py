"""Validate what a server sends: it may be another program, a later version of this one, or lie.

Numbers are within limits, names are plain text, and words for people have no control characters. Anything else is a
ValueError that names the field; ``connection.py`` makes it a sentence with the server's name.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ...morph.speech.takes import ENDS, STOPPED
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
    """Put words for people on one line, and cut them to a length."""
    return AfterValidator(lambda said: one_line(said)[:longest])


NULL_IS_EMPTY = BeforeValidator(lambda said: "" if said is None else said)
Name = Annotated[str, Field(max_length=LONGEST_NAME), AfterValidator(_check_plain)]
LISTED = Field(max_length=MOST_NAMES, strict=False, fail_fast=True)  # a list becomes a tuple
Names = Annotated[tuple[Name, ...], LISTED]
Note = Annotated[str, NULL_IS_EMPTY, _cut(LONGEST_NOTE)]
Text = Annotated[str, NULL_IS_EMPTY, _cut(LONGEST_TEXT)]
Notes = Annotated[tuple[Note, ...], LISTED]
Frames = Annotated[int, Field(ge=0, le=MOST_FRAMES)]
Rate = Annotated[int, Field(ge=LOWEST_RATE, le=HIGHEST_RATE)]
Seconds = Annotated[float, Field(ge=0, le=MOST_S, allow_inf_nan=False)]


class Told(BaseModel):
    """An object of a server's JSON. Read it with ``read``; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


AnyTold = TypeVar("AnyTold", bound=Told)


def read(kind: type[AnyTold], said: Any) -> AnyTold:
    """Return an object that a server sent; ValueError with its first wrong field, in one sentence."""
    try:
        return kind.model_validate(said)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"])) or "the answer"
    if first["type"] == "missing":
        raise ValueError(f"{field} is missing")
    raise ValueError(f"{field} is {reprlib.repr(first['input'])}: {first['msg']}")


class LineTold(Told):
    """A server's report on a line."""

    ended: Annotated[str, AfterValidator(lambda said: check_choice("ended", said, ("", *ENDS, *STOPPED)))] = (
        ""
    )
    frames: Frames | None = None  # of 80 ms
    pieces: Annotated[int, Field(ge=0, le=MOST_PIECES)] = 1
    spoken: Text = ""  # the text as spoken; "" if that is the text itself
    notes: Notes = ()  # sentences for the user
    made_by: Notes = ()  # the engine and its settings


NOTHING_TOLD = LineTold()  # of another program's server


class WordTold(Told):
    """A word of a line and its time span."""

    word: Text
    start_time: Seconds
    end_time: Seconds
    first_char: Annotated[int, Field(ge=0)]
    last_char: int


class Event(Told):
    """An event of a line, or the JSON of a part; fields that events of its type do not have keep their defaults."""

    type: str = ""
    audio: str = ""  # base64
    frames: Frames = 0  # of the progress
    expected: Frames = 0
    report: LineTold = NOTHING_TOLD
    timestamps: Annotated[
        tuple[WordTold, ...], Field(max_length=MOST_WORDS, strict=False, fail_fast=True)
    ] = ()

    def words(self, text: str, after_s: float = 0.0) -> tuple[WordTime, ...]:
        """Return the words of a line's text, or those after ``after_s``; ValueError for impossible ones."""
        return tuple(_words_of(self.timestamps, text, after_s))


def _words_of(told: Iterable[WordTold], text: str, after_s: float) -> Iterable[WordTime]:
    for one in told:
        if not after_s <= one.start_time <= one.end_time:
            raise ValueError(
                f"a word runs from {one.start_time} to {one.end_time} s behind one that ends at {after_s} s"
            )
        if not one.first_char <= one.last_char <= len(text):
            raise ValueError(f"last_char is {one.last_char}, no place in a text of {len(text)} characters")
        yield WordTime(one.word, one.start_time, one.end_time, one.first_char, one.last_char)
        after_s = one.end_time

"""A server's JSON, validated, and its facts: its engine, its checkpoint, and its abilities.

The server may be another program, a later version of this one, or malicious. Numbers have limits, names are plain text,
and texts have no control characters. Else a ValueError names the field; ``connection.py`` adds the server's name.
"""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ...morph.hearing.whisper import CODES
from ...morph.speech.lines import ENDS, STOPPED
from ...morph.text.encoding import CONTROL
from ...morph.words.timing import WordTime
from ...postprocess.checks import check_choice
from ..terminal.console import one_line
from .servers import Server

SEED = "seed"
PARTS = "multipart"  # of ``stream_format``
OUR_UPLOADS = "comfyui-"  # prefix of voices that clients of this pack upload
SAMPLE_RATE = 24000  # Hz: of Qwen3-TTS; the audio of other servers is resampled to it
MOST_LINES = 64  # of a server that does not report its limit
MOST_WIDTH = 10**6  # numbers of a speaker embedding
# For servers that do not report their checkpoint's.
PUBLISHED_LANGUAGES = ("auto", *CODES)
# Of the checkpoint of another server, which does not report it; nothing depends on these.
UNKNOWN: dict[str, Any] = {"kind": "", "size": "", "width": 1, "sample_rate": SAMPLE_RATE}
OURS, VLLM_OMNI, OTHER = "qwen3-tts-morph", "vLLM-Omni", "another server"

LONGEST_NAME = 255  # characters: of voices, languages, checkpoints
LONGEST_NOTE = 1000
LONGEST_TEXT = 400_000  # of a line as spoken: figures are longer as words
MOST_NAMES = 10_000
MOST_FRAMES = 10**7  # nine days
MOST_PIECES = 10**6
MOST_WORDS = LONGEST_TEXT
MOST_S = 10**6  # of a line, in seconds
RATES = (8000, 192_000)  # Hz
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
    if CONTROL.search(name):
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
Rate = Annotated[int, Field(ge=RATES[0], le=RATES[1])]
Seconds = Annotated[float, Field(ge=0, le=MOST_S, allow_inf_nan=False)]


class Reported(BaseModel):
    """An object of a server's JSON. Read it with ``read``; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


Json = Mapping[str, Any] | None
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
    report: ReportedLine = ReportedLine()
    timestamps: Annotated[tuple[ReportedWord, ...], Field(max_length=MOST_WORDS, strict=False, fail_fast=True)] = ()

    def words(self, text: str, after_s: float = 0.0) -> tuple[WordTime, ...]:
        """Return the words of a line's text, all after ``after_s``; ValueError for impossible ones."""
        found = []
        for one in self.timestamps:
            start_s, end_s = one.start_time, one.end_time
            if not after_s <= start_s <= end_s:
                raise ValueError(f"a word runs from {start_s} to {end_s} s behind one that ends at {after_s} s")
            if not one.first_char <= one.last_char <= len(text):
                raise ValueError(f"last_char is {one.last_char}, no place in a text of {len(text)} characters")
            after_s = end_s
            found.append(WordTime(one.word, start_s, end_s, one.first_char, one.last_char))
        return tuple(found)


class ServerFacts(Reported):
    """The facts of a server at the time of the question. Ours reports most of them in ``/v1/status``."""

    server: Server
    engine: str  # OURS, VLLM_OMNI or OTHER
    model: Name  # the name of its checkpoint, "" if it reports none
    # Sorted and without our clients' uploads (OUR_UPLOADS): both change while lines are spoken.
    voices: tuple[str, ...]
    kind: Name  # of its checkpoint, as the next ones; see ``Model``
    size: Name
    width: Annotated[int, Field(ge=1, le=MOST_WIDTH)]
    sample_rate: Rate
    languages: Names = ()
    follows_instructions: bool = True  # our server ignores them if its checkpoint cannot
    word_times: bool = False  # answers may have them
    fingerprint: Name  # a hash of all that it reports and that changes its audio; "" if there is none
    takes_seed: bool = True  # requests may have a seed
    fields: Names = ()  # that requests may have
    stream_formats: Names = ()
    most_lines: Annotated[int, Field(ge=1, le=10**9)] = MOST_LINES  # the most concurrent requests

    def __str__(self) -> str:
        return f"{self.server}, {self.engine}"

    def speaker(self, name: str) -> str:
        """Return a voice's name as the server spells it; ValueError, with all names, for an unknown one."""
        known = {voice.lower(): voice for voice in self.voices}
        if name.strip().lower() not in known:
            there = f"choose one of {', '.join(self.voices)}" if self.voices else "it lists none"
            raise ValueError(f"server {self} has no voice {name[:64]!r}: {there}")
        return known[name.strip().lower()]


class Named(Reported):
    """A voice or a model in a list."""

    id: Name


class Lists(Reported):
    """The answers to ``/v1/audio/voices`` and ``/v1/models``."""

    voices: Annotated[tuple[Name | Named, ...], LISTED] = ()
    data: Annotated[tuple[Named, ...], LISTED] = ()


def read_facts(server: Server, status: Json, voices: Json, models: Json, schema: Any) -> ServerFacts:
    """Read the answers to ``/v1/status`` (only ours has it), ``/v1/audio/voices`` and ``/v1/models``.

    ``schema``, the OpenAPI document, tells whether an unknown server accepts a seed. Raises ValueError for answers of
    another shape.
    """
    listed = read(Lists, {**(models or {}), "voices": (voices or {}).get("voices", [])})
    ids = [one.id if isinstance(one, Named) else one for one in listed.voices]
    names = tuple(sorted(name for name in ids if not name.startswith(OUR_UPLOADS)))
    if status is not None and status.get("server") == OURS:
        facts = read(ServerFacts, {**status, "server": server, "engine": OURS, "voices": names, "takes_seed": True})
        if facts.sample_rate == SAMPLE_RATE or not facts.fingerprint:
            return facts
        # One track has one rate.
        return facts.model_copy(update={"fingerprint": f"{facts.fingerprint} {facts.sample_rate} Hz"})
    engine = VLLM_OMNI if "uploaded_voices" in (voices or {}) else OTHER
    model = listed.data[0].id if listed.data else ""
    fingerprint = hashlib.sha256(f"{server.url} {engine} {model}".encode()).hexdigest()
    takes_seed = engine == VLLM_OMNI or SEED in speech_fields(schema)
    known: dict[str, Any] = {"model": model, "voices": names, "fingerprint": fingerprint, "takes_seed": takes_seed}
    return ServerFacts(server=server, engine=engine, **known, **UNKNOWN)


def speech_fields(schema: Any) -> tuple[str, ...]:
    """Return the fields of a speech request in an OpenAPI document, or ()."""
    try:
        body = schema["paths"]["/v1/audio/speech"]["post"]["requestBody"]["content"]["application/json"]
        fields = body["schema"]
        if "$ref" in fields:
            fields = schema["components"]["schemas"][fields["$ref"].rpartition("/")[2]]
        return tuple(fields["properties"])
    except (KeyError, TypeError, AttributeError):
        return ()

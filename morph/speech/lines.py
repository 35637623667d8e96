"""Lines as callers give them, and how they went."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from ..hearing.whisper import Transcript
from ..model.model import Model
from ..model.names import known_language
from ..options import IGNORE, LAYOUTS, GenerateOptions
from ..text.pronunciation import PronunciationList, Reading, find_readings, read_text
from ..text.split import check_encodable, check_spoken
from ..voice.prompt import check_streams_text
from ..voice.voice import Voice, check_voice
from ..words.alignment import Trace
from ..words.head import no_word_times
from ..words.timing import WordTime

log = logging.getLogger(__name__)

# How a take can end, best first. A take that is cut off contains more of its text than one that ends early.
ENDS = ("eos", "echo", "words", "cap", "loop", "early", "silent")
WRONG = ENDS[1:]
# How a streamed line can end otherwise: by its reader, or because the source of its text failed.
STOPPED = ("cancelled", "failed")
ERROR = "error"  # of a line that failed alone
CAP, WORDS, ECHO = "cap", "words", "echo"

# A text is searched when it is checked, cut and reported; with a list this takes 0.5 ms for 1,000 characters.
_find_readings = lru_cache(8)(find_readings)


@dataclass(frozen=True)
class Line:
    """A text that one voice speaks."""

    # ``[pause 0.4]`` in it is silence (``text/split.py``). It may be an iterator of strings, as a language model gives
    # them: read once, in its own thread, and closed when the line ends.
    text: str | Iterable[str]
    voice: Voice
    language: str = "auto"  # or one of the checkpoint's
    seed: int = 0  # of its random stream
    instruct: str | None = None  # overrides the voice's
    name: str = ""  # the character, for reports
    # Of a text that comes in parts. "sentence": each sentence is a piece, spoken once it is complete. "token": one
    # piece, spoken word by word; only for voices cloned as x-vector. Its figures are not written out, even for
    # checkpoints that need that; it is never split, and has no pauses and no readings.
    layout: str = LAYOUTS[0]
    pronunciation: tuple[PronunciationList, ...] = ()  # beside the voice's own; the first list's reading counts

    def find_readings(self, text: str) -> tuple[Reading, ...]:
        """Return what of the text, or of a part of it, is read as something else."""
        return _find_readings(text, (*self.voice.pronunciation, *self.pronunciation))

    def as_read(self, text: str) -> str:
        """Return the text, or a part of it, as it is read; ValueError as ``read_text``."""
        return read_text(text, self.find_readings(text))


@dataclass(frozen=True)
class LineReport:
    name: str  # the character, or ""
    text: str  # as it was given
    frames: int  # of 80 ms, before crossfades overlap them
    seconds: float  # of audio
    ended: str  # the worst piece's of ``ENDS``, or one of ``STOPPED``, or ``ERROR``
    pieces: int  # how many the text was cut into
    spoken: str = ""  # the text as spoken; "" if it is the text itself
    takes: int = 1  # of the piece with the most
    notes: tuple[str, ...] = ()  # sentences for the user
    from_before: bool = False  # reused from an earlier run (``kept/cache.py``)
    error: str = ""  # why it could not be made, if ``ended`` says so
    heard: Transcript | None = None  # by a speech recogniser, if one was asked (``kept/render.py``)
    device: str = ""  # that made it, if there are several (``Fleet``)
    readings: tuple[Reading, ...] = ()  # what of the text was read as something else


@dataclass(frozen=True)
class PieceSpan:
    """A piece of a line: its text as spoken, and its samples ``start`` to ``end`` (excluded) in the waveform.

    Pauses are between the spans; crossfaded spans overlap by the fade. ``trace`` needs an alignment head: its first
    frame begins ``trimmed`` samples before ``start``, and each frame takes 80 ms divided by ``speed``.
    """

    text: str
    start: int
    end: int
    trace: Trace | None = field(default=None, compare=False)
    trimmed: int = field(default=0, compare=False)
    speed: float = field(default=1.0, compare=False)


@dataclass(frozen=True)
class Spoken:
    waveform: np.ndarray  # float32 ``[T]``
    sample_rate: int
    report: LineReport
    spans: tuple[PieceSpan, ...] = ()  # in order; they cover the waveform except its pauses
    engine: str = ""  # which engine made it and why, for reports
    take: int = 1  # other than 1 if a word check kept another (``take_seed``)
    speed: float = 1.0  # of the audio, relative to decoding
    words: tuple[WordTime, ...] = ()  # at speed 1, if a server reports them; else the traces do
    number: int = 0  # of its caption in the file; 0 if there is none

    def with_notes(self, *notes: str) -> Spoken:
        return replace(self, report=replace(self.report, notes=(*self.report.notes, *notes)))


def check_line(model: Model, line: Line) -> None:
    """Raise ValueError if this model cannot speak the line."""
    if line.layout not in LAYOUTS:
        raise ValueError(f"layout is {line.layout!r}: choose {' or '.join(LAYOUTS)}")
    if isinstance(line.text, str):
        check_spoken(line.as_read(line.text))
    elif line.layout == "token":
        check_streams_text(line.voice)
    check_encodable(line.instruct or "", "instruct")
    known_language(line.language, model.languages, model.name)
    check_voice(model, line.voice, line.instruct)


def check_followed(model: Model, options: GenerateOptions) -> None:
    """Raise ValueError if the options need word times and the checkpoint reports none."""
    if options.wrong_words != IGNORE and model.alignment is None:
        why = no_word_times(model.name)
        raise ValueError(f"wrong_words is {options.wrong_words}: {why}, with wrong_words ignore")


def next_seed(seed: int, pieces: int, takes: int = 1) -> int:
    """Return a seed ``takes`` later: pieces of a take have consecutive seeds, and no two takes share one."""
    return seed + takes * max(1, pieces)


def take_seed(seed: int, take: int) -> int:
    """Return the seed of a user's or a word check's take of a line, counted from 1: ``[take N]`` in a script."""
    return seed if take == 1 else hash_seed(f"{seed}\0take {take}")


def hash_seed(key: str) -> int:
    """Return a seed that depends on words only, so that it stays when other lines change."""
    return int.from_bytes(blake2b(key.encode(), digest_size=7).digest(), "big")


FAILED_S = 0.5  # of silence in place of a failed line: no file may be empty


def failed_line(line: Line, rate: int, error: BaseException) -> Spoken:
    """Return half a second of silence in place of a line that could not be made, with the reason."""
    why = say_why(error)
    stack = None if why == str(error) else error  # a sentence needs no traceback
    log.warning("line %.40r could not be made: %s", line.text, why, exc_info=stack)
    silence = np.zeros(round(FAILED_S * rate), dtype=np.float32)
    return Spoken(silence, rate, LineReport(line.name, str(line.text), 0, FAILED_S, ERROR, 0, error=why))


def say_why(error: BaseException) -> str:
    """Return an error in words, with its type if only that explains it; a server's are ConnectionErrors."""
    is_sentence = isinstance(error, (ValueError, ConnectionError))
    return str(error) if is_sentence else f"{type(error).__name__}: {error}"

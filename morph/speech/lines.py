"""Lines, as callers give them, and how they went."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ..hearing.words import HeardWords
from ..model.model import Model
from ..options import LAYOUTS
from ..text.encoding import check_encodable
from ..text.pauses import check_spoken
from ..text.pronunciation import PronunciationList, Reading, find_readings, read_text
from ..voice.prompt import check_language, check_streams_text
from ..voice.voice import Voice, check_voice
from ..words.timing import WordTime
from ..words.trace import Trace
from .takes import ERROR

log = logging.getLogger(__name__)

# A line's text is searched when it is checked, cut and reported; with a list that takes 0.5 ms for 1,000 characters.
_find_readings = lru_cache(8)(find_readings)


@dataclass(frozen=True)
class Line:
    """A text that one voice speaks.

    Args:
        text: what to speak; ``[pause 0.4]`` in it is silence (see ``text/pauses.py``). In streams also an iterator of
            strings, as a language model gives them: it is read in a thread of its own, once, and closed (``close()``,
            as generators have) when the line or the stream ends.
        voice: who speaks.
        language: one of the checkpoint's, or "auto".
        seed: of its random stream.
        instruct: overrides the voice's.
        name: the character, for reports.
        layout: of a text that comes in parts. "sentence": each sentence is a piece, spoken as soon as it is complete.
            "token": one piece, spoken word by word as they come; only for voices cloned as x-vector. Figures are not
            written out in it, not even for checkpoints that need that (see ``GenerateOptions.normalize``), it is
            not split, however long it is, and has no pauses and no readings.
        pronunciation: how words are read, beside the voice's own list; of several readings the first list's.
    """

    text: str | Iterable[str]
    voice: Voice
    language: str = "auto"
    seed: int = 0
    instruct: str | None = None
    name: str = ""
    layout: str = LAYOUTS[0]
    pronunciation: tuple[PronunciationList, ...] = ()

    def find_readings(self, text: str) -> tuple[Reading, ...]:
        """Return what of the line's text, or of a part of it, is read as something else."""
        return _find_readings(text, (*self.voice.pronunciation, *self.pronunciation))

    def as_read(self, text: str) -> str:
        """Return the line's text, or a part of it, as it is read; ValueError as ``read_text``."""
        return read_text(text, self.find_readings(text))


@dataclass(frozen=True)
class LineReport:
    """How a line went.

    Args:
        name: the character, or "".
        text: as it was given.
        frames: of 80 ms, before crossfades overlap them.
        seconds: of audio.
        ended: one of ``takes.ENDS``: that of the worst piece; or one of ``takes.STOPPED``; or ``takes.ERROR``.
        pieces: how many the text was cut into.
        spoken: the text as it was spoken, "" if that is the text itself.
        takes: how often the piece with the most takes was spoken.
        notes: sentences for the user.
        from_before: whether it was made by an earlier run and kept (see ``kept/cache.py``).
        error: why it could not be made, where ``ended`` says so.
        heard: what a speech recogniser heard in it, where one was asked (see ``word_check.py``).
        device: which device made it, where that could be one of several (see ``batch/fleet.py``).
        readings: what of the text was read as something else.
    """

    name: str
    text: str
    frames: int
    seconds: float
    ended: str
    pieces: int
    spoken: str = ""
    takes: int = 1
    notes: tuple[str, ...] = ()
    from_before: bool = False
    error: str = ""
    heard: HeardWords | None = None
    device: str = ""
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True)
class PieceSpan:
    """A piece of a line: its text as spoken, and its samples ``start`` to ``end`` (excluded) in the line's waveform.

    Pauses are between the spans. Where two pieces are crossfaded, their spans overlap by the length of the fade.
    ``trace`` says which token of the text each frame of the piece is on, if the checkpoint has an alignment head; the
    first frame begins ``trimmed`` samples before ``start``, and each takes 80 ms divided by ``speed``.
    """

    text: str
    start: int
    end: int
    trace: Trace | None = field(default=None, compare=False)
    trimmed: int = field(default=0, compare=False)
    speed: float = field(default=1.0, compare=False)


@dataclass(frozen=True)
class Spoken:
    """A rendered line.

    Args:
        waveform: float32 ``[T]``.
        sample_rate: in Hz.
        report: how it went.
        spans: its pieces in order; together they cover the waveform, but for its pauses.
        engine: which engine made it, why and in which way, as one line for reports.
        take: which take of the line it is, where a word check kept another than the first (see ``take_seed``).
        speed: how much faster than it was decoded it is heard (``script/retime.py``).
        words: where who spoke it says when each is heard, as a server does: at speed 1. Elsewhere the traces say it.
        number: of its caption in the file; 0 where there is none.
    """

    waveform: np.ndarray
    sample_rate: int
    report: LineReport
    spans: tuple[PieceSpan, ...] = ()
    engine: str = ""
    take: int = 1
    speed: float = 1.0
    words: tuple[WordTime, ...] = ()
    number: int = 0


def check_complete(lines: Sequence[Line]) -> None:
    """Raise ValueError for a line whose text comes in parts."""
    for line in lines:
        if not isinstance(line.text, str):
            raise ValueError(
                f"a line's text is {type(line.text).__name__}, not a string: join it, or speak it alone"
            )


def check_line(model: Model, line: Line) -> None:
    """Raise ValueError when a line cannot be spoken by this model."""
    if line.layout not in LAYOUTS:
        raise ValueError(f"layout is {line.layout!r}: choose {' or '.join(LAYOUTS)}")
    if isinstance(line.text, str):
        check_spoken(line.as_read(line.text))
    elif line.layout == "token":
        check_streams_text(line.voice)
    check_encodable(line.instruct or "", "instruct")
    check_language(model, line.language)
    check_voice(model, line.voice, line.instruct)


FAILED_S = 0.5  # of silence in the place of a line that could not be made: no file may be empty


def failed_line(line: Line, rate: int, error: BaseException) -> Spoken:
    """Return what stands for a line that could not be made: silence, and why."""
    why = say_why(error)
    stack = None if why == str(error) else error  # a sentence says it all
    log.warning("line %.40r could not be made: %s", line.text, why, exc_info=stack)
    silence = np.zeros(round(FAILED_S * rate), dtype=np.float32)
    return Spoken(silence, rate, LineReport(line.name, str(line.text), 0, FAILED_S, ERROR, 0, error=why))


def say_why(error: BaseException) -> str:
    """Return an error in words, with its type where only that says what it is."""
    is_sentence = isinstance(error, (ValueError, ConnectionError))  # as a server's is
    return str(error) if is_sentence else f"{type(error).__name__}: {error}"

"""The words of lines that were spoken, with their times: from the traces of their pieces (``words/timing.py``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...postprocess.ends import MARGIN_S, quiet_spans
from ..model.model import Model
from ..model.tokens import TextIds
from ..words.captions import LineWords
from ..words.head import no_word_times
from ..words.timing import WordTime
from ..words.trace import Trace
from ..words.traced import TracedLine, TracedPiece
from .lines import PieceSpan, Spoken


def check_word_times(model: Model) -> None:
    """Raise ValueError for a checkpoint whose lines have no word times."""
    if model.alignment is None:
        raise ValueError(no_word_times(model.name))
    model.texts.check_spans()


def word_times(model: Model, spoken: Spoken) -> tuple[WordTime, ...]:
    """Return the words of a line and when they are heard in its waveform, in order; () where ``traced_line`` has None.

    Args:
        model: the checkpoint that has spoken it.
        spoken: the line, at any speed.

    Raises:
        ValueError: as ``check_word_times``; for a trace of another text.
    """
    line = traced_line(model, spoken)
    return line.words() if line is not None else ()


def traced_line(model: Model, spoken: Spoken) -> TracedLine | None:
    """Return what the words of a line are found from; arguments and errors are those of ``word_times``.

    None for a line without a trace: it failed, was kept before there were any, or is another program's.
    """
    check_word_times(model)
    assert model.alignment is not None
    traced = [(span, span.trace) for span in spoken.spans if span.trace is not None]
    if not traced or len(traced) < len(spoken.spans):
        return None
    report, speed = spoken.report, spoken.speed
    return TracedLine(
        str(report.text),
        tuple(_traced_piece(model.texts, spoken, span, trace) for span, trace in traced),
        len(spoken.waveform) / spoken.sample_rate * speed,
        model.alignment.lead_s,
        tuple(report.readings),
        speed,
    )


def track_words(model: Model, spoken: Sequence[Spoken], starts: Sequence[int]) -> list[LineWords]:
    """Return the words of lines that are heard in one track.

    Args:
        model: the checkpoint that has spoken them.
        spoken: the lines.
        starts: the first sample of each in the track.

    Raises:
        ValueError: as ``word_times``.
    """
    return [
        LineWords(word_times(model, one), one.report.name).at(start / one.sample_rate)
        for one, start in zip(spoken, starts, strict=True)
    ]


def _traced_piece(texts: TextIds, spoken: Spoken, span: PieceSpan, trace: Trace) -> TracedPiece:
    rate, speed = spoken.sample_rate, spoken.speed
    cut_s = span.trimmed / rate
    start_s = span.start / rate * speed - cut_s
    return TracedPiece(span.text, tuple(texts.spans(span.text)), trace, start_s, _quiet(spoken, span, cut_s))


def _quiet(spoken: Spoken, span: PieceSpan, cut_s: float) -> tuple[tuple[float, float], ...]:
    """Return where a piece is quiet, in seconds from its first frame at the speed at which it was decoded."""
    quiet = quiet_times(spoken.waveform[span.start : span.end], spoken.sample_rate)
    return tuple(
        (cut_s + start * spoken.speed if start else 0.0, cut_s + end * spoken.speed) for start, end in quiet
    )


def quiet_times(waveform: np.ndarray, sample_rate: int) -> list[tuple[float, float]]:
    """Return where words are not heard in a sound, in seconds, in order.

    Weak sounds at the edges of speech are as quiet: MARGIN_S beside it counts as speech.
    """
    quiet = []
    for start, end in quiet_spans(waveform, sample_rate):
        first = start / sample_rate + (MARGIN_S if start else 0.0)
        last = end / sample_rate - (MARGIN_S if end < len(waveform) else 0.0)
        quiet.append((first, max(first, last)))
    return quiet

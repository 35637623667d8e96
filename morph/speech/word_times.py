"""Word times of rendered lines, from the traces of their pieces (``words/timing.py``)."""

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
    if model.alignment is None:
        raise ValueError(no_word_times(model.name))


def word_times(model: Model, spoken: Spoken) -> tuple[WordTime, ...]:
    """Return a line's words and their times in its waveform, at any speed, in order; () without traces.

    Raises ValueError as ``check_word_times``, and for a trace of another text.
    """
    line = traced_line(model, spoken)
    return line.words() if line is not None else ()


def traced_line(model: Model, spoken: Spoken) -> TracedLine | None:
    """Return what word times are computed from; errors as ``word_times``.

    None for a line without a trace: it failed, is from another program, or was cached before traces existed.
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
    """Return the words of lines joined in one track; ``starts``: the first sample of each. Errors as ``word_times``."""
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
    """Return where a piece is quiet, in seconds from its first frame at decoding speed."""
    quiet = quiet_times(spoken.waveform[span.start : span.end], spoken.sample_rate)
    return tuple(
        (cut_s + start * spoken.speed if start else 0.0, cut_s + end * spoken.speed) for start, end in quiet
    )


def quiet_times(waveform: np.ndarray, sample_rate: int) -> list[tuple[float, float]]:
    """Return where no words are audible, in seconds, in order.

    Weak sounds at the edges of speech are as quiet: MARGIN_S beside it counts as speech.
    """
    quiet = []
    for start, end in quiet_spans(waveform, sample_rate):
        first = start / sample_rate + (MARGIN_S if start else 0.0)
        last = end / sample_rate - (MARGIN_S if end < len(waveform) else 0.0)
        quiet.append((first, max(first, last)))
    return quiet

"""Takes of a piece: how one ended, its words, which of two is used, and when it is retried."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...postprocess.ends import is_silent, quiet_times
from ..decode.rows import Decoded
from ..model.model import Model
from ..text.duration import shortest_frames
from ..words.alignment import token_path
from ..words.guard import WordGuard, find_fault, follow_text
from ..words.head import AlignmentHead, no_word_times
from ..words.timing import PiecePath, WordTime, line_words, retime_words
from .lines import CAP, ENDS, WRONG, Spoken


@dataclass(frozen=True)
class Take:
    """One try at a piece of text."""

    decoded: Decoded
    waveform: np.ndarray  # float32 ``[T]``
    # One of STOPPED, or "eos" by itself, "echo" with words of its reference first, "words" with wrong words, "cap" at
    # its limit, "loop" repeating itself, "early" too soon for its text, "silent" without sound.
    ended: str
    number: int = 1  # counted from 1
    wrong: str = ""  # the wrong words, for people, or ""

    def better_than(self, other: Take) -> bool:
        """Return whether it ended better; of equals, the earlier one is used."""
        return rank(self.ended) < rank(other.ended)

    def begin(self, frames: int) -> Take:
        """Return the first frames of the take, 1 or more, as one that ran into its limit."""
        codes, trace = self.decoded.codes, self.decoded.trace
        decoded = Decoded(codes[:frames], CAP, trace and trace.begin(frames))
        samples = len(self.waveform) // len(codes) * frames
        return Take(decoded, self.waveform[:samples], CAP, self.number)


def rank(ended: str) -> int:
    """Return how well a take ended, 0 for best."""
    return ENDS.index(ended) if ended in ENDS else len(ENDS)


def judge_end(text: str, decoded: Decoded, waveform: np.ndarray, sample_rate: int) -> str:
    if is_silent(waveform, sample_rate):
        return "silent"
    if decoded.ended == "eos" and len(decoded.codes) < shortest_frames(text):
        return "early"
    return decoded.ended


@dataclass(frozen=True)
class RetryPolicy:
    """How often a failed take is retried: of a piece, of a line at a server, of a line with wrong words.

    ``most_frames`` is the caller's own limit: a take that ran into it is as long as it was asked to be.
    """

    retries: int
    most_frames: int | None = None

    @property
    def further(self) -> range:
        return range(2, self.retries + 2)

    def is_wrong(self, ended: str, frames: int) -> bool:
        """Return whether another seed may help a take of ``frames`` that ended so."""
        at_own_limit = self.most_frames is not None and frames >= self.most_frames
        return ended in WRONG and not (ended == CAP and at_own_limit)


def check_word_times(model: Model) -> AlignmentHead:
    """Return the head that follows the text; ValueError for a checkpoint without one."""
    if model.alignment is None:
        raise ValueError(no_word_times(model.name))
    return model.alignment


def word_times(model: Model, spoken: Spoken) -> tuple[WordTime, ...]:
    """Return a line's words and their times in its waveform, at any speed, in order.

    () for a line without a trace: it failed, is from another program, or was cached before traces existed; ValueError
    as ``check_word_times``.
    """
    head = check_word_times(model)
    traced = [(span, span.trace) for span in spoken.spans if span.trace is not None]
    if not traced or len(traced) < len(spoken.spans):
        return ()
    rate, speed, report = spoken.sample_rate, spoken.speed, spoken.report
    pieces = []
    for span, trace in traced:
        # In seconds from its first frame at decoding speed
        cut_s, tokens = span.trimmed / rate, tuple(model.texts.spans(span.text))
        quiet = tuple(
            (cut_s + start * speed if start else 0.0, cut_s + end * speed)
            for start, end in quiet_times(spoken.waveform[span.start : span.end], rate)
        )
        path = tuple(token_path(trace, len(tokens)))
        pieces.append(PiecePath(span.text, tokens, path, span.start / rate * speed - cut_s, quiet))
    seconds = len(spoken.waveform) / rate * speed
    words = line_words(str(report.text), pieces, seconds, head.lead_s, report.readings)
    return retime_words(words, speed)


def wrong_words(model: Model, text: str, decoded: Decoded) -> str:
    """Return what is wrong with a take's words, such as "did not say 'on the bridge'"; or "".

    Only the first fault is named. Nothing is known without an alignment head, or for texts without spaces between
    words: the check was not measured there.
    """
    if decoded.trace is None:
        return ""
    spans, codes = model.texts.spans(text), decoded.codes[:, 0].numpy() if decoded.ended == "eos" else None
    fault = find_fault(text, spans, decoded.trace, codes, model.letters)
    return "" if fault is None else fault.describe(text, spans)


def follow_words(model: Model, text: str) -> WordGuard | None:
    """Return a guard for the words of a piece while it is spoken; None if nothing is known of them."""
    return None if model.alignment is None else follow_text(text, model.texts.spans(text))

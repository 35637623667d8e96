"""Takes of a piece: how one ended, its words, which of two is used, and when it is retried.

After a reference (ICL), a take may repeat the reference's last words before its text: an echo. The alignment head
looks at a line's own words while they are spoken; during an echo it has no weight on the text. Silence before the
text is no echo, which the audio shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...postprocess.ends import is_silent, quiet_times, window_powers
from ..decode.rows import Decoded
from ..model.model import Model
from ..text.duration import shortest_frames
from ..words.alignment import AlignmentHead, no_word_times, token_path
from ..words.guard import WordFault, WordGuard, find_by_letters, follow_text, spell
from ..words.timing import PiecePath, WordTime, line_words, retime_words
from .lines import CAP, ENDS, WRONG, Spoken

UNSEEN = 0.1  # a frame with less weight on the text belongs to other words
# Of audio before the text, 0.24 s. Good lines had none, and at most one frame of silence.
LEAST_FRAMES = 3
FOLLOWED = 0.5  # the median weight after them, if the head follows the text
LOUD_DB = 25.0  # below the loud parts of the take; quieter frames are silence or breath
LOUD_PERCENTILE = 95


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


def begins_elsewhere(decoded: Decoded, waveform: np.ndarray) -> bool:
    """Return whether a take (samples float ``[T]``) says something before its text; False without alignment head."""
    if decoded.trace is None:
        return False
    weights = decoded.trace.weights
    seen = np.flatnonzero(weights >= UNSEEN)
    if not len(seen) or seen[0] < LEAST_FRAMES or np.median(weights[seen[0] :]) < FOLLOWED:
        return False
    power = window_powers(waveform, len(waveform) // len(weights), len(weights))
    loud = power > np.percentile(power, LOUD_PERCENTILE) * 10 ** (-LOUD_DB / 10)
    return int(loud[: seen[0]].sum()) >= LEAST_FRAMES


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
    fault = find_wrong_words(model, text, decoded)
    return "" if fault is None else fault.describe(text, model.texts.spans(text))


def find_wrong_words(model: Model, text: str, decoded: Decoded) -> WordFault | None:
    """Return a take's fault: by the letters of a complete line if the checkpoint has a table of them."""
    spans, trace, ended = model.texts.spans(text), decoded.trace, decoded.ended == "eos"
    if trace is None or (guard := follow_text(text, spans)) is None:
        return None
    faults = [guard.take(*frame) for frame in zip(trace.tokens.tolist(), trace.weights.tolist(), strict=True)]
    missing = guard.end() if ended else None
    letters, tokens = spell(text, spans)
    if model.letters is None or not ended or not len(letters):
        return next((fault for fault in faults if fault is not None), missing)
    return missing or find_by_letters(model.letters, decoded.codes[:, 0].numpy(), letters, tokens, trace)


def follow_words(model: Model, text: str) -> WordGuard | None:
    """Return a guard for the words of a piece while it is spoken; None if nothing is known of them."""
    return None if model.alignment is None else follow_text(text, model.texts.spans(text))

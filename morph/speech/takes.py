"""Takes of a piece: whether one went wrong, and which of two is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..decode.decoded import Decoded
from ..text.duration import shortest_frames

# How a take can end, best first. A take that is cut off contains more of its text than one that ends early.
ENDS = ("eos", "echo", "words", "cap", "loop", "early", "silent")
WRONG = ENDS[1:]
# How a streamed line can end otherwise: by its reader, or because the source of its text failed.
STOPPED = ("cancelled", "failed")
ERROR = "error"  # of a line that failed alone
CAP, WORDS, ECHO = "cap", "words", "echo"
SILENCE_DBFS = -50.0  # speech has 50 ms louder than this; the demo voice's silence has -60 dBFS
WINDOW_S = 0.05
SCANNED = 10  # windows per step


@dataclass(frozen=True)
class Take:
    """One try at a piece of text."""

    decoded: Decoded
    waveform: np.ndarray  # float32 ``[T]``
    # One of STOPPED, or "eos" by itself, "echo" with words of its reference first, "words" with wrong words, "cap" at
    # its limit, "loop" repeating itself, "early" too soon for its text, "silent" without sound.
    ended: str
    number: int = 1  # counted from 1
    wrong: str = ""  # which words went wrong, for people, or ""

    def better_than(self, other: Take) -> bool:
        """Return whether it ended better; of equals, the earlier one is kept."""
        return rank(self.ended) < rank(other.ended)

    def begin(self, frames: int) -> Take:
        """Return the first frames of the take, 1 or more, as one that ran into its limit."""
        samples = len(self.waveform) // len(self.decoded.codes) * frames
        decoded = self.decoded
        trace = None if decoded.trace is None else decoded.trace.part(0, frames)
        codes = Decoded(decoded.codes[:frames], CAP, trace)
        return replace(self, decoded=codes, waveform=self.waveform[:samples], ended=CAP, wrong="")


def rank(ended: str) -> int:
    """Return how well a take ended, 0 for best."""
    return ENDS.index(ended) if ended in ENDS else len(ENDS)


def judge_end(text: str, decoded: Decoded, waveform: np.ndarray, sample_rate: int) -> str:
    """Return how a take of ``text`` ended, one of ENDS."""
    if is_silent(waveform, sample_rate):
        return "silent"
    if decoded.ended == "eos" and len(decoded.codes) < shortest_frames(text):
        return "early"
    return decoded.ended


def is_silent(waveform: np.ndarray, sample_rate: int) -> bool:
    """Return whether no 50 ms of a waveform (float ``[T]``) are louder than SILENCE_DBFS."""
    window = max(1, min(len(waveform), round(WINDOW_S * sample_rate)))
    windows = waveform[: len(waveform) // window * window].reshape(-1, window)
    for begin in range(0, len(windows), SCANNED):  # most waveforms begin with speech
        power = np.square(windows[begin : begin + SCANNED], dtype=np.float64).mean(axis=1)
        if not power.max() < 10 ** (SILENCE_DBFS / 10):
            return False
    return True

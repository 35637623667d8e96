"""Takes of a piece: how one ended, which of two is used, and when and with which seed it is retried.

After a reference (ICL), a take may repeat the reference's last words before its text: an echo. The alignment head
looks at a line's own words while they are spoken; during an echo it has no weight on the text. Silence before the
text is no echo, which the audio shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from ..decode.rows import Decoded
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


def is_silent(waveform: np.ndarray, sample_rate: int) -> bool:
    """Return whether no 50 ms of a waveform (float ``[T]``) are louder than SILENCE_DBFS."""
    window = max(1, min(len(waveform), round(WINDOW_S * sample_rate)))
    steps = range(0, len(waveform) // window, SCANNED)  # most waveforms begin with speech
    powers = (_power(waveform[begin * window :], window, SCANNED) for begin in steps)
    return all(power.max() < 10 ** (SILENCE_DBFS / 10) for power in powers)


def _power(waveform: np.ndarray, window: int, most: int) -> np.ndarray:
    """Return the power of each complete window, at most ``most`` of them, float64."""
    count = min(most, len(waveform) // window)
    windows = waveform[: count * window].reshape(-1, window)
    power: np.ndarray = np.square(windows, dtype=np.float64).mean(axis=1)
    return power


def begins_elsewhere(decoded: Decoded, waveform: np.ndarray) -> bool:
    """Return whether a take (samples float ``[T]``) says something before its text; False without alignment head."""
    if decoded.trace is None:
        return False
    weights = decoded.trace.weights
    seen = np.flatnonzero(weights >= UNSEEN)
    if not len(seen) or seen[0] < LEAST_FRAMES or np.median(weights[seen[0] :]) < FOLLOWED:
        return False
    power = _power(waveform, len(waveform) // len(weights), len(weights))
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


def next_seed(seed: int, pieces: int, takes: int = 1) -> int:
    """Return a seed ``takes`` later: pieces of a take have consecutive seeds, and no two takes share one."""
    return seed + takes * max(1, pieces)


def take_seed(seed: int, take: int) -> int:
    """Return the seed of a user's or a word check's take of a line, counted from 1: ``[take N]`` in a script."""
    return seed if take == 1 else hash_seed(f"{seed}\0take {take}")


def hash_seed(key: str) -> int:
    """Return a seed that depends on words only, so that it stays when other lines change."""
    return int.from_bytes(blake2b(key.encode(), digest_size=7).digest(), "big")

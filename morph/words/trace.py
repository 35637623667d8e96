"""What the alignment head said of each frame: which token of the text it is on, and how much of its attention is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# What engines report of a frame: the token's index plus 1 (0: nothing is reported; NO_TOKEN: the head sees no text
# token yet), its weight and that of all text tokens, in steps of 1 / SCALE.
REPORTED = 3
NO_TOKEN = -1
SCALE = 1 << 20
MOST_TOKENS = 1 << 24
SHARES, SHARE_DIGITS = ("weights", "mass"), 5


def frame_of(numbers: np.ndarray) -> tuple[int, float]:
    """Return the token and the weight of one frame, from what engines reported of it, int64 ``[REPORTED]``."""
    token, weight, _ = numbers.tolist()
    return (token - 1 if token > 0 else NO_TOKEN), weight / SCALE


@dataclass(frozen=True, eq=False)
class Trace:
    """Which of its text tokens each frame of a piece is on, of T frames in their order.

    Args:
        tokens: int32 ``[T]``: the index among the tokens of the piece's text of the one with the most weight, as the
            text was encoded to be spoken; NO_TOKEN where the head sees none yet.
        weights: float32 ``[T]``: the head's attention to that token. All positions have 1 together, so it may be small.
        mass: float32 ``[T]``: the attention to all tokens of the text together.
    """

    tokens: np.ndarray
    weights: np.ndarray
    mass: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def from_numbers(cls, numbers: np.ndarray) -> Trace | None:
        """Return what engines reported of frames, int64 ``[T, REPORTED]``; None if they reported nothing."""
        tokens = numbers[:, 0]
        if not tokens.any():
            return None
        shares = (numbers[:, 1:] / SCALE).astype(np.float32)
        named = np.where(tokens > 0, tokens - 1, NO_TOKEN).astype(np.int32)
        return cls(named, np.ascontiguousarray(shares[:, 0]), np.ascontiguousarray(shares[:, 1]))

    def to_lists(self) -> dict[str, list[Any]]:
        """Return it as lists, for files; shares are rounded to SHARE_DIGITS."""
        shares = {
            name: getattr(self, name).astype(np.float64).round(SHARE_DIGITS).tolist() for name in SHARES
        }
        return {"tokens": self.tokens.tolist(), **shares}

    @classmethod
    def from_lists(cls, lists: Mapping[str, Sequence[Any]]) -> Trace:
        """Return what ``to_lists`` made lists of; ValueError, TypeError or KeyError for other things."""
        tokens, *shares = (np.asarray(lists[name]) for name in ("tokens", *SHARES))
        if tokens.ndim != 1 or any(one.shape != tokens.shape for one in shares):
            raise ValueError("a trace has lists of different lengths")
        if tokens.size and (
            tokens.dtype != np.int64 or not NO_TOKEN <= tokens.min() <= tokens.max() < MOST_TOKENS
        ):
            raise ValueError("a token of a trace is out of range")
        weights, mass = (one.astype(np.float32) for one in shares)
        if not all(((one >= 0) & (one <= 1.001)).all() for one in (weights, mass)):
            raise ValueError("a share of a trace is out of range")
        return cls(tokens.astype(np.int32), weights, mass)

    def part(self, begin: int = 0, end: int | None = None) -> Trace:
        """Return that of some of the frames."""
        frames = slice(begin, end)
        return Trace(self.tokens[frames], self.weights[frames], self.mass[frames])

    @classmethod
    def join(cls, parts: Sequence[Trace]) -> Trace:
        """Return the traces of frames that follow one another as one."""
        return cls(
            np.concatenate([one.tokens for one in parts]),
            np.concatenate([one.weights for one in parts]),
            np.concatenate([one.mass for one in parts]),
        )

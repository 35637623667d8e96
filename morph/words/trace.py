"""The alignment head's result for each frame: its text token, and that token's share of the attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Engines report of a frame: the token's index plus 1 (0: no report; NO_TOKEN: no text token yet), its weight and that
# of all text tokens, in steps of 1 / SCALE.
REPORTED = 3
NO_TOKEN = -1
SCALE = 1 << 20
MOST_TOKENS = 1 << 24
SHARES, SHARE_DIGITS = ("weights", "mass"), 5


@dataclass(frozen=True, eq=False)
class Trace:
    """The text tokens of a piece's T frames."""

    tokens: np.ndarray  # int32 [T], with the most weight; NO_TOKEN before the first
    weights: np.ndarray  # float32 [T], the head's attention to it: all positions share 1, so it may be small
    mass: np.ndarray  # float32 [T], the attention to all tokens of the text

    @classmethod
    def from_numbers(cls, numbers: np.ndarray) -> Trace | None:
        """Return the trace of engines' reports, int64 ``[T, REPORTED]``; None if they reported nothing."""
        tokens = numbers[:, 0]
        if not tokens.any():
            return None
        shares = (numbers[:, 1:] / SCALE).astype(np.float32)
        named = np.where(tokens > 0, tokens - 1, NO_TOKEN).astype(np.int32)
        return cls(named, np.ascontiguousarray(shares[:, 0]), np.ascontiguousarray(shares[:, 1]))

    def to_lists(self) -> dict[str, list[Any]]:
        """Return lists for files; shares are rounded to SHARE_DIGITS."""
        shares = {name: getattr(self, name).astype(np.float64).round(SHARE_DIGITS).tolist() for name in SHARES}
        return {"tokens": self.tokens.tolist(), **shares}

    @classmethod
    def from_lists(cls, lists: Mapping[str, Sequence[Any]]) -> Trace:
        """Return the trace of ``to_lists``; raise ValueError, TypeError or KeyError for other things."""
        tokens, *shares = (np.asarray(lists[name]) for name in ("tokens", *SHARES))
        if tokens.ndim != 1 or any(one.shape != tokens.shape for one in shares):
            raise ValueError("a trace has lists of different lengths")
        if tokens.size and (tokens.dtype != np.int64 or not NO_TOKEN <= tokens.min() <= tokens.max() < MOST_TOKENS):
            raise ValueError("a token of a trace is out of range")
        weights, mass = (one.astype(np.float32) for one in shares)
        if not all(((one >= 0) & (one <= 1.001)).all() for one in (weights, mass)):
            raise ValueError("a share of a trace is out of range")
        return cls(tokens.astype(np.int32), weights, mass)

    def begin(self, frames: int) -> Trace:
        return Trace(self.tokens[:frames], self.weights[:frames], self.mass[:frames])

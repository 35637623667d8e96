"""The trace of the spoken tokens by the attention head that follows the text, and the best path through it.

In nearly every frame the head attends to the token being spoken. The path never goes back, so a frame that attends
elsewhere does not move it, and repeated words have their place where most of their frames are.
"""

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
        shares = (np.array(lists[name], dtype=np.float32) for name in SHARES)
        return cls(np.array(lists["tokens"], dtype=np.int32), *shares)

    def begin(self, frames: int) -> Trace:
        return Trace(self.tokens[:frames], self.weights[:frames], self.mass[:frames])


# Costs of steps, in frames of full weight: to the same or the next token nothing, by up to four a little, for quick
# words. A wider step costs JUMP, the frames that must support it, for skipped words.
STEP_COSTS = np.array([0.0, 0.0, 0.1, 0.2, 0.3])
WIDEST = len(STEP_COSTS) - 1
COSTS_AHEAD = STEP_COSTS[::-1, None]  # the widest step first, as the tokens before one are
JUMP = 2.0
NEIGHBOURS = 0.5  # the share of a frame's weight for the tokens beside its own


class Path:
    """A line's path, found while it is spoken; tokens beyond ``count`` extend it."""

    def __init__(self, count: int = 1):
        self._scores = np.full(count, -np.inf)  # of the best path to each token
        self._scores[0] = 0.0
        self._before: list[np.ndarray] = []  # in each frame: the token before, on the best path to each token

    def __len__(self) -> int:
        return len(self._before)

    def take(self, trace: Trace) -> None:
        """Add frames. One that attends to no token counts for none."""
        seen = trace.tokens >= 0
        tokens, weights = trace.tokens * seen, trace.weights * seen
        known = len(self._scores)
        count = max(known, int(tokens.max(initial=0)) + 1)
        scores = np.full((len(tokens) + 1, WIDEST + count), -np.inf)  # beginning with those before the frames
        scores[0, WIDEST : WIDEST + known] = self._scores
        # For each frame and token, the scores of the tokens before it: row k is the one that is WIDEST - k before.
        before = np.lib.stride_tricks.sliding_window_view(scores, WIDEST + 1, axis=1).transpose(0, 2, 1)
        gains = np.zeros((len(tokens), count + 2))  # with a column before the first token, and one after the last
        for place, share in enumerate((NEIGHBOURS, 1.0, NEIGHBOURS)):
            gains[np.arange(len(tokens)), tokens + place] = share * weights
        jumps = []
        for frame, token in enumerate(tokens.tolist()):
            own = np.maximum.reduce(before[frame] - COSTS_AHEAD, 0, out=scores[frame + 1, WIDEST:])
            known = max(known, token + 1)
            own[known:] = -np.inf  # as if frames came one by one
            nearest = _jump(scores[frame, WIDEST:], own, token)
            if nearest is not None:
                jumps.append((frame, token, nearest))
            own += gains[frame, 1:-1]
        self._scores = scores[-1, WIDEST:]
        # The best token before each. Of equal steps the widest, so that a path stays on a token as long as it can.
        back = np.arange(count) - WIDEST + (before[:-1] - COSTS_AHEAD).argmax(1)
        for frame, token, nearest in jumps:
            back[frame, token] = nearest
        self._before.extend(back)

    def tokens(self) -> list[int]:
        """Return the token of each frame so far; later frames can still change the last ones."""
        path = [int(self._scores.argmax())][: len(self)]
        for before in reversed(self._before[1:]):
            path.append(int(before[path[-1]]))
        return path[::-1]


def _jump(scores: np.ndarray, made: np.ndarray, token: int) -> int | None:
    if token <= WIDEST:
        return None
    # A list: argmax lets other threads of Python in between, each time.
    from_there = scores[: token - WIDEST].tolist()
    best = max(from_there)
    if best - JUMP <= made[token]:
        return None
    made[token] = best - JUMP
    return from_there.index(best)


def token_path(trace: Trace, count: int) -> list[int]:
    """Return the token of each frame of a text of ``count`` tokens, at least 1; it may skip tokens."""
    path = Path(count)
    path.take(trace)
    return path.tokens()

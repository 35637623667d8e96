"""The text token spoken in each frame: a path through an attention head's trace.

In nearly every frame the head attends to the token being spoken. The path never goes back, so a frame that attends
elsewhere does not move it, and repeated words have their place where most of their frames are.
"""

from collections.abc import Sequence

import numpy as np

from .trace import Trace

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
        self._before.extend(_steps_back(before[:-1], jumps))

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


def _steps_back(before: np.ndarray, jumps: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """Return the best previous token for scores ``[T, WIDEST + 1, tokens]``; of equal steps the widest."""
    # The widest, so that a path stays on a token as long as it can.
    tokens = np.arange(before.shape[2]) - WIDEST + (before - COSTS_AHEAD).argmax(1)
    for frame, token, nearest in jumps:
        tokens[frame, token] = nearest
    return tokens


def token_path(trace: Trace, count: int) -> list[int]:
    """Return the token of each frame of a text of ``count`` tokens, at least 1; it may skip tokens.

    Raise ValueError for the trace of another text.
    """
    if len(beyond := trace.tokens[trace.tokens >= count]):
        raise ValueError(f"token {beyond[0]} is looked at in a text of {count}: give the trace of this text")
    path = Path(count)
    path.take(trace)
    return path.tokens()

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

    def take(self, tokens: Sequence[int], weights: Sequence[float]) -> None:
        """Add frames by the token with the most attention (-1: none) and its weight, 0 to 1."""
        known = len(self._scores)
        count = max(known, max(tokens, default=0) + 1)
        scores = np.full((len(tokens) + 1, WIDEST + count), -np.inf)  # beginning with those before the frames
        scores[0, WIDEST : WIDEST + known] = self._scores
        # For each frame and token, the scores of the tokens before it: row k is the one that is WIDEST - k before.
        before = np.lib.stride_tricks.sliding_window_view(scores, WIDEST + 1, axis=1).transpose(0, 2, 1)
        made, jumps = scores[1:, WIDEST:], []
        gains = _gains(tokens, weights, count)
        for frame, token in enumerate(tokens):
            own = np.maximum.reduce(before[frame] - COSTS_AHEAD, 0, out=made[frame])
            known = max(known, token + 1)
            own[known:] = -np.inf  # as if frames came one by one
            nearest = _jump(scores[frame, WIDEST:], own, token)
            if nearest is not None:
                jumps.append((frame, token, nearest))
            own += gains[frame]
        self._scores = made[-1] if len(made) else self._scores
        self._before.extend(_steps_back(before[:-1], jumps))

    def tokens(self) -> list[int]:
        """Return the token of each frame so far; later frames can still change the last ones."""
        if not self._before:
            return []
        path = [int(self._scores.argmax())]
        for before in reversed(self._before[1:]):
            path.append(int(before[path[-1]]))
        return path[::-1]


def _gains(tokens: Sequence[int], weights: Sequence[float], count: int) -> np.ndarray:
    gains = np.zeros((len(tokens), count + 2))  # with a column before the first token, and one after the last
    looked_at = np.array(tokens, dtype=np.intp)
    frames = np.flatnonzero(looked_at >= 0)
    columns, own = looked_at[frames] + 1, np.array(weights)[frames]
    for beside, share in ((-1, NEIGHBOURS), (0, 1.0), (1, NEIGHBOURS)):
        gains[frames, columns + beside] = share * own
    return gains[:, 1:-1]


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


def seen_tokens(trace: Trace) -> tuple[list[int], list[float]]:
    """Return tokens and weights of a trace; frames without a token have weight 0."""
    seen = trace.tokens >= 0
    return (trace.tokens * seen).tolist(), (trace.weights * seen).tolist()


def traced_path(trace: Trace, count: int) -> list[int]:
    return token_path(*seen_tokens(trace), count)


def token_path(tokens: Sequence[int], weights: Sequence[float], count: int) -> list[int]:
    """Return the text token spoken in each frame; it never goes back, and may skip tokens.

    Each frame has the token with the most attention, from 0 (-1: none), and its weight, 0 to 1; the text has
    ``count`` tokens, at least 1. Raise ValueError for other lengths or tokens.
    """
    beyond = [token for token in tokens if not -1 <= token < count]
    if beyond:
        raise ValueError(f"token {beyond[0]} is looked at in a text of {count}: give the trace of this text")
    if len(tokens) != len(weights):
        raise ValueError(
            f"there are {len(tokens)} tokens and {len(weights)} weights: give one of each for a frame"
        )
    path = Path(count)
    path.take(tokens, weights)
    return path.tokens()

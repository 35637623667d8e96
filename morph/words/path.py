"""Which text token is spoken in each frame: a path through what an attention head looked at.

In nearly every frame the head looks at the token that is being spoken. The path never goes back, so a frame in which it
looks elsewhere does not move it, and words that a line says twice have their place where most of their frames are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .trace import Trace

# What a step costs, in frames of full weight: to the same or the next token nothing, by up to four a little, as in
# quick words. A wider step costs JUMP: it must be worth that many frames behind it, as where words are left out.
STEP_COSTS = np.array([0.0, 0.0, 0.1, 0.2, 0.3])
JUMP = 2.0
NEIGHBOURS = 0.5  # the share of a frame's weight that counts for the tokens beside the one that was looked at


class Path:
    """Finds a line's path while it is spoken.

    Args:
        count: of the line's text tokens, as far as they are known; a token beyond them adds to it.
    """

    def __init__(self, count: int = 1):
        self._scores = np.array([0.0])  # of the best path to each token
        self._before: list[np.ndarray] = []  # in each frame: the token before, on the best path to each token
        self._grow(count)

    def take(self, token: int, weight: float) -> None:
        """Take a frame: the token that the head looked at most, and its weight (0 to 1); no token: -1."""
        self._grow(token + 1)
        tokens = np.arange(len(self._scores))
        steps, scores = self._step(tokens)
        before = tokens - steps
        widest = len(STEP_COSTS) - 1
        if token > widest:
            nearest = int(self._scores[: token - widest].argmax())
            if self._scores[nearest] - JUMP > scores[token]:
                scores[token], before[token] = self._scores[nearest] - JUMP, nearest
        if token >= 0:
            scores[max(token - 1, 0) : token + 2] += NEIGHBOURS * weight
            scores[token] += (1 - NEIGHBOURS) * weight
        self._scores = scores
        self._before.append(before)

    def tokens(self) -> list[int]:
        """Return the token of each frame so far; what comes can still change the last ones."""
        if not self._before:
            return []
        path = [int(self._scores.argmax())]
        for before in reversed(self._before[1:]):
            path.append(int(before[path[-1]]))
        return path[::-1]

    def _step(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the best step to each token that is not a jump, and the path's score with it.

        Of equal ones it is the wider: where nothing tells, a path stays on a token as long as it can.
        """
        padded = np.concatenate((np.full(len(STEP_COSTS) - 1, -np.inf), self._scores))
        # Column k: from the token that is len - 1 - k before.
        reached = np.lib.stride_tricks.sliding_window_view(padded, len(STEP_COSTS)) - STEP_COSTS[::-1]
        columns = reached.argmax(1)
        return len(STEP_COSTS) - 1 - columns, reached[tokens, columns]

    def _grow(self, count: int) -> None:
        more = count - len(self._scores)
        if more > 0:
            self._scores = np.concatenate((self._scores, np.full(more, -np.inf)))


def traced_path(trace: Trace, count: int) -> list[int]:
    """Return ``token_path`` of a trace; a frame in which the head saw no token moves nothing."""
    seen = trace.tokens >= 0
    return token_path((trace.tokens * seen).tolist(), (trace.weights * seen).tolist(), count)


def token_path(tokens: Sequence[int], weights: Sequence[float], count: int) -> list[int]:
    """Return which text token is spoken in each frame; it never goes back, and tokens may be left out.

    Args:
        tokens: that the head looked at most, in each frame, from 0; -1 where it saw none.
        weights: of each, 0 to 1.
        count: of the line's text tokens, 1 or more.

    Raises:
        ValueError: for lengths that differ, and for a token that the text does not have.
    """
    beyond = [token for token in tokens if not -1 <= token < count]
    if beyond:
        raise ValueError(f"token {beyond[0]} is looked at in a text of {count}: give the trace of this text")
    path = Path(count)
    for token, weight in zip(tokens, weights, strict=True):
        path.take(int(token), float(weight))
    return path.tokens()

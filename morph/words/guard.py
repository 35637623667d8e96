"""Find words that a line skips, repeats or invents while it is spoken, from an attention head.

In a good line the head attends to the tokens one after another, with nearly all of its weight. ``WordGuard`` follows
the cheapest path that stays on its token or goes to the next one with each frame; frames that attend elsewhere, or to
nothing, have a cost. A line whose cost grows faster than a good line's has failed.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .written import CHARACTER

# Costs in frames of full weight, searched on half of the lines of ``python -m lab.words guard FOLDER --lines forced``.
# The cost of a frame on the path's next token, beyond it, on the last one, and before that.
AHEAD, FAR_AHEAD, BEHIND, FAR_BEHIND = 0.5, 1.65, 1.3, 1.4
# The weight of a sure frame, and the cost of a frame without it, also after the last word.
SURE, UNSURE, UNSURE_BEHIND = 0.5, 1.3, 0.25
ALLOWED, LIMIT = 0.06, 2.7  # cost per frame, and the excess that shows a fault
FINISHED = 0.5  # the least weight of the mark after the last word in a complete line
LEFT = 2  # unseen tokens of the last word
SEEN = 0.1  # the least weight of a seen token
HELD = 25  # frames in a row on one token: longer than a token with the pause after it
SAID = re.compile(r"[^\W_](?:\S*[^\W_])?")  # a word between spaces, without the punctuation around it
UNSPACED = re.compile(f"[{CHARACTER}]")


@dataclass(frozen=True)
class WordFault:
    """A fault in the words of a line."""

    kind: str  # "skipped", "repeated" or "invented"
    first: int  # text token of skipped or repeated words, or of the word before invented ones
    end: int  # the token after them


class WordGuard:
    """Follows one line up to its first fault.

    ``words`` are the text tokens of each word, first and end (excluded), in order and without punctuation, at least
    one; ``count`` is the number of the text's tokens.
    """

    def __init__(self, words: Sequence[tuple[int, int]], count: int):
        # State 0 is before the first token, state k on token k - 1.
        self._words, self._last = words, words[-1][1]
        self._is_said = np.zeros(count + 1, dtype=bool)
        for first, end in words:
            self._is_said[first + 1 : end + 1] = True
        self._costs = np.where(np.arange(count + 1) == 0, 0.0, np.inf)  # of the cheapest path to each state
        self._seen = np.zeros(count + 1)  # the highest weight of each state
        self._states: list[int] = []  # of each frame; 0 if the head saw none
        self._held = 0  # the frames in a row on the path's state
        self._excess = 0.0  # the cost above ALLOWED, accumulated
        self._begin = self._begin_at = 0  # since this frame and this state of the path

    @property
    def _at(self) -> int:
        """The path's state."""
        return int(self._costs.argmin())

    def take(self, token: int, weight: float) -> WordFault | None:
        """Add a frame, by the token with the most attention (-1: none) and its weight, 0 to 1; return any fault."""
        state, was_at = token + 1, self._at
        before = self._costs[was_at]
        if not self._excess:
            self._begin, self._begin_at = len(self._states), was_at
        self._states.append(state if weight >= SEEN else 0)
        self._seen[state] = max(self._seen[state], weight)
        reached = np.minimum(self._costs, np.append(np.inf, self._costs[:-1]))
        self._costs = reached + self._frame_costs(state, weight)
        at = self._at
        self._held = self._held + 1 if at == was_at else 1
        self._excess = max(0.0, self._excess + self._costs[at] - before - ALLOWED)
        if self._excess < LIMIT and (self._held < HELD or at > self._last):
            return None
        return self._describe()

    def end(self) -> WordFault | None:
        """Return the fault of a line that ended by itself without all of its words."""
        is_finished = self._seen[min(self._last + 1, len(self._seen) - 1) :].max() >= FINISHED
        if is_finished and len(self._unseen(self._words[-1][0] + 1, self._last + 1)) < LEFT:
            return None
        unseen = self._unseen(0, self._last + 1)
        return self._fault("skipped", unseen[0] if unseen else self._last, self._last)

    def _frame_costs(self, state: int, weight: float) -> np.ndarray:
        if not state:
            return np.zeros(len(self._costs))
        costs = np.full(len(self._costs), FAR_AHEAD)
        costs[state:] = FAR_BEHIND
        costs[state - 1], costs[state] = AHEAD, 0.0
        costs[state + 1 : state + 2] = BEHIND
        unsure = np.full(len(costs), UNSURE)
        unsure[self._last + 1 :] = UNSURE_BEHIND
        return costs * weight + unsure * max(0.0, SURE - weight)

    def _describe(self) -> WordFault:
        begin = self._begin_at
        if unseen := self._unseen(begin, max(self._at, self._states[-1])):
            return self._fault("skipped", unseen[0], unseen[-1])
        again = [state for state in self._states[self._begin :] if 0 < state < begin]
        kind, first = ("repeated", min(again)) if len(again) > 2 else ("invented", begin)
        return self._fault(kind, first, begin)

    def _unseen(self, begin: int, end: int) -> list[int]:
        return [state for state in range(begin, end) if self._is_said[state] and self._seen[state] < SEEN]

    def _fault(self, kind: str, first: int, last: int) -> WordFault:
        ends = [end for _, end in self._words]
        words = [self._words[min(bisect_left(ends, state), len(ends) - 1)] for state in (first, last)]
        return WordFault(kind, words[0][0], words[1][1])


def follow_text(text: str, spans: Sequence[tuple[int, int]]) -> WordGuard | None:
    """Return a guard for a text by the characters of each token; None for one without words between spaces."""
    words = said_tokens(text, spans)
    return WordGuard(words, len(spans)) if words else None


def said_tokens(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the first token of each word and the one after its last, from the characters of each token."""
    # A text with Chinese or Japanese characters has none, as it has no spaces between words.
    if UNSPACED.search(text):
        return []
    visible = [index for index, (begin, end) in enumerate(spans) if text[begin:end].strip()]
    starts, ends = ([spans[index][side] for index in visible] for side in (0, 1))
    words = []
    for match in SAID.finditer(text):
        first, last = bisect_right(ends, match.start()), bisect_left(starts, match.end())
        if last > first:
            words.append((visible[first], visible[last - 1] + 1))
    return words

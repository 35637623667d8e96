"""Words that a line skips, says twice or invents, seen while it is spoken in what an attention head looks at.

The head looks at the token that is spoken. In a line that is said well it sees nearly all tokens, one after another,
with nearly all of its weight. A frame in which it looks elsewhere is alone: it looks ahead at a word like the one that
is spoken. So a line has gone elsewhere only where the weight of such frames adds up, with none between them that goes
on from the current word.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("skipped", "repeated", "invented")
SEEN = 0.1  # the least weight of a token that the head has seen
SURE = 0.3  # the least weight of a frame that moves the line
NEAR = 2  # words by which a line goes on at once
MOVED = 2.0  # the weight, in frames, that shows that a line has gone elsewhere
AGAIN = 1.5  # of it on tokens that were said before: the line says words twice
GAP = 3  # tokens in a row that the head has not seen: in lines that are said well it passes over one, at most two
LEFT = 2  # tokens that it has not seen at the end of a line
# How much weight the last frames may lack, each 1 at most: nothing of the text is spoken. A pause in a line has less.
# Behind a line's last word there is silence, up to 0.8 s after a reference.
FRAMES, LOST = 12, 6.5
END_FRAMES, END_LOST = 20, 16.0
HELD = 25  # frames in a row on one word: longer than one is spoken, with the pause after it


@dataclass(frozen=True)
class WordFault:
    """What went wrong with the words of a line.

    Args:
        kind: one of KINDS.
        first: the first text token of the words that were skipped or said twice; of the word after which others were
            invented.
        end: the token after their last one.
        frames: how many the line had when it was noticed.
    """

    kind: str
    first: int
    end: int
    frames: int


class WordGuard:
    """Follows the words of one line.

    Args:
        words: the text tokens of each word, first and end (excluded), in order and without punctuation; 1 or more.
            Where text comes late, ``add`` more.

    Raises:
        ValueError: for a line without words.
    """

    def __init__(self, words: Sequence[tuple[int, int]]):
        if not words:
            raise ValueError("a line without words cannot be followed: leave it out")
        self._words: list[tuple[int, int]] = []
        self._owner: list[int] = []  # the word of each token; what is between two words belongs to the second
        self._tokens: list[int] = []  # those of words
        self._best: list[float] = []  # the highest weight that each token has had
        self.add(words)
        self._frames = 0
        self._at = 0  # the word that is spoken
        self._held = 0  # frames in a row on it
        self._checked = 0  # how many of ``_tokens`` are behind the line, and told if they were skipped
        self._windows = (_Window(FRAMES, LOST), _Window(END_FRAMES, END_LOST))
        self._is_lost = False
        self._begin = self._last = -1  # the words elsewhere that the head looks at,
        self._weight = self._again = (
            0.0  # the weight of these frames, and of those whose token was said before,
        )
        self._places: dict[int, bool] = {}  # and for each token whether it was

    def add(self, words: Sequence[tuple[int, int]]) -> None:
        """Add words of the text."""
        for first, end in words:
            self._owner += [len(self._words)] * (end - len(self._owner))
            self._best += [0.0] * (end - len(self._best))
            self._tokens += range(first, end)
            self._words.append((first, end))

    def take(self, token: int, weight: float) -> WordFault | None:
        """Take a frame; return what it shows to have gone wrong.

        Args:
            token: that the head looked at most, -1 if it saw none.
            weight: of that token, 0 to 1.
        """
        self._frames += 1
        self._held += 1
        fault = self._fault("invented", self._at, self._at) if self._loses(weight) else None
        if token >= 0 and weight >= SURE:
            fault = self._follow(token, weight) or fault
        if 0 <= token < len(self._best):  # else it is punctuation after the last word
            self._best[token] = max(self._best[token], weight)
        return fault

    def _follow(self, token: int, weight: float) -> WordFault | None:
        """Go on to a token, or note that the head looks elsewhere."""
        token = min(token, len(self._owner) - 1)
        word = self._owner[token]
        if not self._at <= word <= self._at + NEAR:
            return self._look_elsewhere(token, weight)
        self._go_on(word)
        return self._skipped(self._words[max(word - NEAR, 0)][0])

    def end(self) -> list[WordFault]:
        """Return the words that were not said by the end of a line that ended by itself."""
        faults = []
        while fault := self._skipped(len(self._owner)):
            faults.append(fault)
        left = [token for token in self._tokens[self._checked :] if self._best[token] < SEEN]
        if len(left) >= LEFT:
            faults.append(self._fault("skipped", self._owner[left[0]], self._owner[left[-1]]))
        return faults

    def _loses(self, weight: float) -> bool:
        """Return whether the line has just lost its text, or holds a word that nobody speaks so long."""
        inside, behind = (window.lacks(1 - weight) for window in self._windows)
        is_last = self._at == len(self._words) - 1
        was_lost, self._is_lost = self._is_lost, behind if is_last else inside
        if self._is_lost:
            return not was_lost
        return self._held == HELD and not is_last

    def _go_on(self, word: int) -> None:
        if word != self._at:
            self._at, self._held = word, 0
        self._begin = -1

    def _look_elsewhere(self, token: int, weight: float) -> WordFault | None:
        word = self._owner[token]
        if self._begin < 0 or abs(word - self._last) > NEAR:
            self._begin, self._weight, self._again, self._places = word, 0.0, 0.0, {}
        self._begin, self._last = min(self._begin, word), word
        self._weight += weight
        if self._places.setdefault(token, self._best[token] >= SURE):
            self._again += weight
        # Who speaks moves on: to look at one token says nothing.
        return self._jump() if self._weight >= MOVED and len(self._places) > 1 else None

    def _jump(self) -> WordFault | None:
        """Go to where the head looks; return the words between that were not said, or are said twice."""
        before, begin, last = self._at, self._begin, self._last
        self._go_on(last)
        if begin > before:
            return self._skipped(self._words[begin][0])
        said = sum(self._places.values())
        return self._fault("repeated", begin, before) if said > 1 and self._again >= AGAIN else None

    def _skipped(self, end: int) -> WordFault | None:
        """Return the next words before token ``end`` of which the head has not seen GAP tokens in a row."""
        start = index = self._checked
        while index < len(self._tokens) and self._tokens[index] < end:
            if self._best[self._tokens[index]] >= SEEN:
                if index - start >= GAP:
                    break
                self._checked = start = index + 1
            index += 1
        else:
            if index - start < GAP:
                return None
        self._checked = index
        return self._fault("skipped", self._owner[self._tokens[start]], self._owner[self._tokens[index - 1]])

    def _fault(self, kind: str, first: int, last: int) -> WordFault:
        return WordFault(kind, self._words[first][0], self._words[last][1], self._frames)


class _Window:
    """The sum of the last numbers, and whether it is too high."""

    def __init__(self, count: int, limit: float):
        self._limit, self._sum = limit, 0.0
        self._numbers = deque((0.0,) * count, count)

    def lacks(self, number: float) -> bool:
        """Add a number; return whether the sum has reached the limit."""
        self._sum += number - self._numbers[0]
        self._numbers.append(number)
        return self._sum >= self._limit


def word_faults(
    tokens: Sequence[int], weights: Sequence[float], words: Sequence[tuple[int, int]], ended: bool = True
) -> list[WordFault]:
    """Return all that went wrong with the words of a line; the arguments are those of ``WordGuard``.

    ``ended``: whether it ended by itself, so that all of its words should have been said.
    """
    guard = WordGuard(words)
    taken = (guard.take(*frame) for frame in zip(tokens, weights, strict=True))
    faults = [fault for fault in taken if fault is not None]
    return faults + (guard.end() if ended else [])

"""The words of a line while it is spoken, each soon after it has ended, for captions beside the sound.

These times are by the paths alone; those of the complete line (``line_words``) are finer.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ..options import FRAME_RATE
from ..text.pronunciation import Reading
from .path import Path
from .readings import find_read_words
from .timing import PiecePath, Times, WordTime, match_words
from .trace import Trace
from .written import WrittenWord

BEHIND_FRAMES = 4  # the path so long ago is final, unless words are skipped
# Characters searched for a piece's words: figures have fewer than their words, addresses may have more.
LOOKED_AT, AND_MORE = 4, 400


class _Spoken(NamedTuple):
    """The piece that is spoken now; see ``LiveWords.add``."""

    number: int
    said: str
    begin_s: float
    path: Path


class LiveWords:
    """Finds the words of one line, frame by frame; its ``text`` may grow.

    ``spans`` returns the characters of each token of a piece's text (``TextTokenizer.spans``), ``find_readings`` the
    readings of the text.
    """

    def __init__(
        self,
        text: str,
        spans: Callable[[str], Sequence[tuple[int, int]]],
        lead_s: float = 0.0,
        find_readings: Callable[[str], Sequence[Reading]] | None = None,
    ):
        self.text, self._lead_s = text, lead_s
        cached = lru_cache(maxsize=1)  # both are called with every chunk, mostly for the same text
        self._spans, self._find_readings = cached(spans), cached(find_readings or (lambda _: ()))
        self._from = 0  # the end of the ended pieces' text
        self._given = 0  # returned words after it
        self._last = WordTime("", 0.0, 0.0, 0, 0)  # the last of them
        self._piece: _Spoken | None = None

    def add(self, piece: int, said: str, begin_s: float, trace: Trace) -> list[WordTime]:
        """Add frames of a piece; return the words that have newly ended.

        Pieces come in order. ``said`` is its text as spoken, as far as it is known; ``begin_s`` its first frame's
        time in the line's sound, below 0 if silence was cut there.
        """
        before, ended = self._piece, list[WordTime]()
        if before is None or piece != before.number:
            ended, before = self._end_piece(), None
        path = Path() if before is None else before.path
        path.take(trace)
        self._piece = _Spoken(piece, said, begin_s, path)
        return [*ended, *self._give(begin_s + (len(path) - BEHIND_FRAMES) / FRAME_RATE)]

    def end(self, seconds: float) -> list[WordTime]:
        """Return the remaining words, none of them after the line's sound of ``seconds``."""
        ended = self._end_piece()
        text, readings = self._rest(len(self.text))
        rest = find_read_words(text, readings).written[self._given :]
        return [
            replace(word, start_s=min(word.start_s, seconds), end_s=min(word.end_s, seconds))
            for word in [*ended, *(self._word(word, None) for word in rest)]
        ]

    def _rest(self, most: int) -> tuple[str, list[Reading]]:
        """Return the text after the ended pieces, and its readings."""
        begin, text = self._from, self.text[self._from :][:most]
        readings = self._find_readings(self.text)
        own = [one for one in readings if begin <= one.first and one.last <= begin + len(text)]
        return text, [replace(one, first=one.first - begin, last=one.last - begin) for one in own]

    def _end_piece(self) -> list[WordTime]:
        words = self._give(math.inf)
        last = self._last
        is_number = any(char.isdigit() for char in last.text)  # which may go on in the next piece
        self._from, self._given = (last.first_char, 1) if is_number else (last.last_char, 0)
        return words

    def _give(self, until_s: float) -> list[WordTime]:
        """Return the current piece's words that have ended by then, with unspoken ones before them."""
        if self._piece is None:
            return []
        _, said, begin_s, spoken = self._piece
        tokens = tuple(self._spans(said))
        path = tuple(min(token, len(tokens) - 1) for token in spoken.tokens())
        piece = PiecePath(said, tokens, path, begin_s)
        text, readings = self._rest(LOOKED_AT * len(said) + AND_MORE)
        words = list(zip(*match_words(text, [piece], self._lead_s, readings, goes_on=True), strict=True))
        last = self._given
        for index, (_, times) in enumerate(words[self._given :], start=self._given + 1):
            if times is not None and times[1] > until_s:
                break
            last = index if times is not None else last
        new, self._given = words[self._given : last], last
        return [self._word(*word) for word in new]

    def _word(self, word: WrittenWord, times: Times | None) -> WordTime:
        last_s = self._last.end_s
        start, end = times or (last_s, last_s)
        start, first, last = max(start, last_s), self._from + word.first, self._from + word.last
        self._last = WordTime(word.text, start, max(start, end), first, last)
        return self._last

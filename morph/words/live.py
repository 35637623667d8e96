"""The words of a line while it is spoken, each soon after it has ended, for captions beside the sound.

These times are by the paths alone; those of the complete line (``line_words``) are finer.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from ..options import FRAME_RATE
from ..text.pronunciation import Reading
from .path import Path, seen_tokens
from .readings import find_read_words
from .timing import PiecePath, Times, WordTime, match_words
from .trace import Trace
from .written import WrittenWord, find_words

BEHIND_FRAMES = 4  # the path so long ago is final, unless words are skipped
# Characters searched for a piece's words: figures have fewer than their words, addresses may have more.
LOOKED_AT, AND_MORE = 4, 400


class LiveWords:
    """Finds the words of one line, frame by frame; its text may grow.

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
        self._text, self._lead_s = text, lead_s
        self._spans = lru_cache(maxsize=1)(spans)  # called with every chunk, mostly of the same text
        self._find_readings = find_readings or (lambda _: ())
        self._readings = self._find_readings(text)
        self._from = 0  # the end of the ended pieces' text
        self._given = 0  # returned words after it
        self._last: WrittenWord | None = None  # the last of them, with its place in the text
        self._last_s = 0.0  # its end
        self._piece = -1
        self._said, self._begin_s, self._frames = "", 0.0, 0  # of the current piece
        self._path = Path()

    def extend(self, text: str) -> None:
        self._text += text
        self._readings = self._find_readings(self._text)

    def add(self, piece: int, said: str, begin_s: float, trace: Trace) -> list[WordTime]:
        """Add frames of a piece; return the words that have newly ended.

        Pieces come in order. ``said`` is its text as spoken, as far as it is known; ``begin_s`` its first frame's
        time in the line's sound, below 0 if silence was cut there.
        """
        ended = self._end_piece() if piece != self._piece else []
        if piece != self._piece:
            self._piece, self._path, self._frames = piece, Path(), 0
        self._said, self._begin_s = said, begin_s
        self._path.take(*seen_tokens(trace))
        self._frames += len(trace)
        until_s = begin_s + (self._frames - BEHIND_FRAMES) / FRAME_RATE
        return [*ended, *self._give(lambda times: times[1] <= until_s)]

    def end(self, seconds: float) -> list[WordTime]:
        """Return the remaining words, none of them after the line's sound of ``seconds``."""
        ended = self._end_piece()
        rest = self._written()[self._given :]
        words = [*ended, *(self._word(word, None) for word in rest)]
        return [
            replace(word, start_s=min(word.start_s, seconds), end_s=min(word.end_s, seconds))
            for word in words
        ]

    def _written(self) -> list[WrittenWord]:
        text = self._text[self._from :]
        readings = self._readings_of(len(text))
        return find_read_words(text, readings).written if readings else find_words(text)

    def _readings_of(self, count: int) -> list[Reading]:
        begin, end = self._from, self._from + count
        own = [one for one in self._readings if begin <= one.first and one.last <= end]
        return [replace(one, first=one.first - begin, last=one.last - begin) for one in own]

    def _end_piece(self) -> list[WordTime]:
        words = self._give(lambda _: True)
        if (last := self._last) is not None:
            is_number = any(char.isdigit() for char in last.text)  # which may go on in the next piece
            self._from, self._given = (last.first, 1) if is_number else (last.last, 0)
        return words

    def _give(self, has_ended: Callable[[Times], bool]) -> list[WordTime]:
        """Return ended words of the current piece, with unspoken ones before them."""
        if self._piece < 0:
            return []
        tokens = tuple(self._spans(self._said))
        path = tuple(min(token, len(tokens) - 1) for token in self._path.tokens())
        piece = PiecePath(self._said, tokens, path, self._begin_s)
        text = self._text[self._from :][: LOOKED_AT * len(self._said) + AND_MORE]
        readings = self._readings_of(len(text)) if self._readings else ()
        written, whole = match_words(text, [piece], self._lead_s, goes_on=True, readings=readings)
        last = self._given
        for index, times in enumerate(whole[self._given :], start=self._given + 1):
            if times is not None and not has_ended(times):
                break
            last = index if times is not None else last
        new = range(self._given, last)
        self._given = last
        return [self._word(written[index], whole[index]) for index in new]

    def _word(self, word: WrittenWord, times: Times | None) -> WordTime:
        start, end = times or (self._last_s, self._last_s)
        start = max(start, self._last_s)
        first, last = self._from + word.first, self._from + word.last
        self._last, self._last_s = WrittenWord(word.text, first, last), max(start, end)
        return WordTime(word.text, start, self._last_s, first, last)

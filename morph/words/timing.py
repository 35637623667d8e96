"""The times of a line's words, from the token paths of its pieces (frames of 80 ms).

A word lasts as long as its letters' tokens: a comma's frames and quiet around it belong to no word. A written word
that is spoken as several has the time of all of them; one that is not spoken has no length. Words of a line that is
still spoken have times by the paths alone; those of the complete line are finer.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from ..options import FRAME_RATE
from ..text.pronunciation import Reading
from .alignment import WIDEST, Path, Trace
from .match import owners
from .written import ReadWords, WrittenWord, find_read_words, find_words, said_span

# Shorter quiet may be that before a t or a k. Of 0.12 to 0.2 s and none, this gave the best times on 102 lines of the
# demo voice against a recogniser's (2026-11-28).
LONG_QUIET_S = 0.2

Times = tuple[float, float]


@dataclass(frozen=True)
class WordTime:
    """A written word of a line with its punctuation, and its time; it ends before the next one starts."""

    text: str
    start_s: float  # seconds in the line's sound
    end_s: float
    first_char: int  # in the line's text, last_char excluded
    last_char: int

    def __post_init__(self) -> None:
        if not 0 <= self.start_s <= self.end_s:
            raise ValueError(f"the word {self.text!r} runs from {self.start_s} to {self.end_s} s: start at 0 or later")


@dataclass(frozen=True)
class PiecePath:
    """A piece of a line, and the path of its speech through its text."""

    text: str
    tokens: tuple[tuple[int, int], ...]  # the characters of each token (TextTokenizer.spans)
    path: tuple[int, ...]  # token of each frame; never goes back; -1 before the first
    start_s: float = 0.0  # first frame's time in the line's sound; below 0 if silence was cut
    quiet: tuple[Times, ...] = ()  # intervals in order, in seconds from its first frame


def line_words(
    text: str,
    pieces: Sequence[PiecePath],
    seconds: float,
    lead_s: float = 0.0,
    readings: Sequence[Reading] = (),
) -> tuple[WordTime, ...]:
    """Return the words of a line of ``seconds`` in order, with times that do not overlap; see ``AlignmentHead``."""
    return _placed(*match_words(text, pieces, lead_s, readings), seconds)


def match_words(
    text: str,
    pieces: Sequence[PiecePath],
    lead_s: float,
    readings: Sequence[Reading] = (),
    goes_on: bool = False,
) -> tuple[list[WrittenWord], list[Times | None]]:
    """Return the words of a text, and their times by the paths alone, or None for unspoken ones.

    ``goes_on``: the text may go on after the pieces.
    """
    spoken = [word.text for piece in pieces for word in find_words(piece.text)]
    words = find_read_words(text, readings)
    if not words.written:
        return [], []
    own = [words.owners[index] for index in owners([word.text for word in words.read], spoken, goes_on)]
    return words.written, _joined(words, own, [times for piece in pieces for times in _piece_times(piece, lead_s)])


def shown_words(text: str, readings: Sequence[Reading], said: Sequence[WordTime]) -> tuple[WordTime, ...]:
    """Return the displayed words of a text, from those of the text as it is read."""
    if not readings or not said:
        return tuple(said)
    words = find_read_words(text, readings)
    if not words.written:
        return ()
    firsts = [word.first for word in words.read]
    own = [words.owners[max(0, bisect_right(firsts, word.first_char) - 1)] for word in said]
    times = _joined(words, own, [(word.start_s, word.end_s) for word in said])
    return _placed(words.written, times, said[-1].end_s)


def _joined(words: ReadWords, own: Sequence[int], said: Sequence[Times]) -> list[Times | None]:
    whole: list[Times | None] = [None] * len(words.written)
    for index, (start, end) in zip(own, said, strict=True):
        before = whole[index]
        whole[index] = (start, end) if before is None else (before[0], max(before[1], end))
    return whole


def _placed(words: Sequence[WrittenWord], times: Sequence[Times | None], seconds: float) -> tuple[WordTime, ...]:
    """Return words within a line's sound whose times do not go back or overlap; unspoken ones have no length."""
    starts: list[float] = []
    ends: list[float] = []
    for own in times:
        unspoken = ends[-1] if ends else next((one[0] for one in times if one is not None), 0.0)
        start, end = own or (unspoken, unspoken)
        starts.append(min(max(start, *starts[-1:], 0.0), seconds))
        ends.append(min(max(starts[-1], end), seconds))
    ends = list(map(min, ends, [*starts[1:], seconds]))
    return tuple(
        WordTime(word.text, start, end, word.first, word.last)
        for word, start, end in zip(words, starts, ends, strict=True)
    )


def _piece_times(piece: PiecePath, lead_s: float) -> list[Times]:
    starts, ends = ([time + lead_s for time in times] for times in _char_times(piece))
    spans = [said_span(word, piece.text) for word in find_words(piece.text)]
    following = [*(starts[first] for first, _ in spans[1:]), len(piece.path) / FRAME_RATE]
    times = []
    for (first, last), until in zip(spans, following, strict=True):
        start, end = max(0.0, starts[first]), max(0.0, ends[last - 1])
        # The head looks at a comma while the word before it still sounds.
        pause = next((begin for begin, behind in piece.quiet if behind > end), until)
        start, end = without_quiet(start, max(end, pause) if pause < until else end, piece.quiet)
        times.append((start + piece.start_s, end + piece.start_s))
    return times


def _char_times(piece: PiecePath) -> tuple[list[float], list[float]]:
    """Return when each character of a piece begins and ends, in seconds from its first frame."""
    # Characters share the time of their token, as Chinese ones do. A token is spoken until the next one is.
    edges = _token_edges(piece.path, len(piece.tokens)) / FRAME_RATE
    starts, ends = [-1.0] * len(piece.text), [-1.0] * len(piece.text)
    for (first, last), (begin, end) in zip(piece.tokens, pairwise(edges.tolist()), strict=True):
        chars = [index for index in range(first, last) if not piece.text[index].isspace()]
        for number, index in enumerate(chars):
            if starts[index] < 0:  # a rare character may be several tokens
                starts[index] = begin + (end - begin) * number / len(chars)
            ends[index] = begin + (end - begin) * (number + 1) / len(chars)
    return [*accumulate(starts, max, initial=0.0)][1:], [*accumulate(ends, max, initial=0.0)][1:]


def _token_edges(path: Sequence[int], count: int) -> np.ndarray:
    """Return the first frame of each token, and the end of the last one, float64 ``[count + 1]``."""
    # A token that the path skips was spoken within a frame: it gets a part of its neighbours.
    edges = np.searchsorted(np.asarray(path, dtype=np.int64), np.arange(count + 1)).astype(np.float64)
    frames = np.diff(edges)
    lent = np.minimum(0.5, frames / 4)
    for before, after in pairwise(np.flatnonzero(frames).tolist()):
        if 1 < after - before <= WIDEST:
            begin, end = edges[before + 1] - lent[before], edges[after] + lent[after]
            edges[before + 1 : after + 1] = np.linspace(begin, end, after - before)
    return edges


def without_quiet(start: float, end: float, quiet: Iterable[Times]) -> Times:
    """Return a spoken word's times without the quiet at its ends, and without its rest after a pause."""
    # Of a word around a long quiet, most is on its own side: the tokens are exact to a frame or two only.
    for first, last in quiet:
        before, behind = first - start, end - last
        is_long = last - first >= LONG_QUIET_S
        if start >= last or first >= end:
            continue
        if behind > 0 and (before <= 0 or (is_long and behind > before)):
            start = last
        elif before > 0 and (behind <= 0 or is_long):
            end = first
    return start, end


def retime_words(words: Iterable[WordTime], speed: float) -> tuple[WordTime, ...]:
    return tuple(replace(word, start_s=word.start_s / speed, end_s=word.end_s / speed) for word in words)


BEHIND_FRAMES = 4  # the path so long ago is final, unless words are skipped
# Characters searched for a piece's words: figures have fewer than their words, addresses may have more.
LOOKED_AT, AND_MORE = 4, 400


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
        # The piece that is spoken now, as ``add`` got it; -1: none yet.
        self._piece, self._said, self._begin_s, self._path = -1, "", 0.0, Path()

    def add(self, piece: int, said: str, begin_s: float, trace: Trace) -> list[WordTime]:
        """Add frames of a piece; return the words that have newly ended.

        Pieces come in order. ``said`` is its text as spoken, as far as it is known; ``begin_s`` its first frame's
        time in the line's sound, below 0 if silence was cut there.
        """
        ended: list[WordTime] = []
        if piece != self._piece:
            ended = self._end_piece()
            self._piece, self._path = piece, Path()
        self._said, self._begin_s = said, begin_s
        self._path.take(trace)
        return [*ended, *self._give(begin_s + (len(self._path) - BEHIND_FRAMES) / FRAME_RATE)]

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
        is_number = any(map(str.isdigit, last.text))  # which may go on in the next piece
        self._from, self._given = (last.first_char, 1) if is_number else (last.last_char, 0)
        return words

    def _give(self, until_s: float) -> list[WordTime]:
        """Return the current piece's words that have ended by then, with unspoken ones before them."""
        if self._piece < 0:
            return []
        tokens = tuple(self._spans(self._said))
        path = tuple(min(token, len(tokens) - 1) for token in self._path.tokens())
        piece = PiecePath(self._said, tokens, path, self._begin_s)
        text, readings = self._rest(LOOKED_AT * len(self._said) + AND_MORE)
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

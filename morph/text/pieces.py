"""Cut a text into pieces while it is written out: each is yielded when later text cannot change it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .arriving import NEXT_BEGUN, SentenceEnds
from .normalize import SpokenText
from .split import (
    CLAUSE_END,
    WORD_TO_SPARE,
    Span,
    clause_ends,
    pack,
    parts_between,
    split_span,
    trim,
    word_ends,
)

CLAUSES, WORDS, INSIDE_WORDS = 1, 2, 3  # the finer levels of ``split_span``


def split_arriving(parts: Iterable[SpokenText], max_chars: int) -> Iterator[str]:
    """Yield the pieces of a text that comes in parts: those of ``split_text`` of the joined text.

    A sentence must not begin with a lower-case letter or a digit, as the normalizer ensures. Only a piece or two are
    buffered; of a longer part without a comma, ``_even_from`` characters, since its pieces are of similar length.
    """
    if not max_chars:
        text = " ".join(part.text for part in parts if part.text).strip()
        yield from [text] if text else []
        return
    cutter = _Cutter(max_chars)
    for part in parts:
        if part.text:
            yield from cutter.add(part)
    yield from cutter.end()


def _even_from(limit: int) -> int:
    """Return the length from which the equal parts of a text, plus WORD_TO_SPARE, are as long as the limit."""
    return limit * -(-limit // WORD_TO_SPARE)


class _Cutter:
    """Packs sentences, or parts of long ones, into pieces of at most ``limit`` characters."""

    def __init__(self, limit: int):
        self._limit = limit
        self._sentences = SentenceEnds()
        self._ends: list[int] = []  # of the sentences after ``_from``
        self._from = 0  # what is before it, is in a piece
        self._piece: Span | None = None  # the one that may still grow
        self._level = 0  # 0: a sentence begins; CLAUSES, WORDS: within one that is too long

    def add(self, part: SpokenText) -> Iterator[str]:
        sentences = self._sentences
        self._ends += sentences.add(f" {part.text}" if sentences.text else part.text)
        if part.ends:
            self._ends += sentences.close()
        yield from self._pieces()
        self._drop()

    def end(self) -> Iterator[str]:
        self._ends += self._sentences.end()
        yield from self._pieces()
        if self._piece is not None:
            yield self._sentences.text[slice(*self._piece)]

    def _pieces(self) -> Iterator[str]:
        for start, end in self._certain_parts():
            if self._piece is not None and end - self._piece[0] <= self._limit:
                self._piece = (self._piece[0], end)
                continue
            if self._piece is not None:
                yield self._sentences.text[slice(*self._piece)]
            self._piece = (start, end)

    def _drop(self) -> None:
        begin = self._from if self._piece is None else self._piece[0]
        count = min(begin, self._sentences.begin)
        self._sentences.drop(count)
        self._from -= count
        if self._piece is not None:
            self._piece = (self._piece[0] - count, self._piece[1] - count)

    def _certain_parts(self) -> Iterator[Span]:
        """Yield parts that later text cannot change, each within one piece, as ``split_span`` does."""
        ends, self._ends = self._ends, []
        for end in ends:
            yield from self._end_sentence(end)
        text = self._sentences.text
        known = len(text[: self._sentences.certain].rstrip())
        if not self._level and known - trim(text, (self._from, known))[0] > self._limit:
            self._level = CLAUSES
        if self._level:
            yield from self._long_sentence(known)

    def _end_sentence(self, end: int) -> Iterator[Span]:
        text, limit = self._sentences.text, self._limit
        span = trim(text, (self._from, end))
        if self._level == WORDS:
            cut = next(clause_ends(text, span), span[1])
            yield from self._words((span[0], cut))
            span = trim(text, (cut, span[1]))
        if not self._level:
            yield from split_span(text, span, limit, CLAUSES) if span[0] < span[1] else ()
        else:
            for part in parts_between(text, span, clause_ends(text, span)):
                yield from split_span(text, part, limit, WORDS)
        self._from, self._level = end, 0

    def _long_sentence(self, known: int) -> Iterator[Span]:
        """Yield the certain parts of a sentence that is too long and goes on to ``known``."""
        text = self._sentences.text
        while (cut := self._clause_end(known)) is not None:
            span = trim(text, (self._from, cut))
            yield from (
                self._words(span) if self._level == WORDS else split_span(text, span, self._limit, WORDS)
            )
            self._from, self._level = cut, CLAUSES
        span = trim(text, (self._from, known))
        if span[1] - span[0] > _even_from(self._limit):
            self._level = WORDS
        if self._level == WORDS and (parts := self._words(span)):
            yield from parts[:-1]
            self._from = parts[-1][0]

    def _clause_end(self, known: int) -> int | None:
        match = CLAUSE_END.search(self._sentences.text, self._from, known)
        if match is None or NEXT_BEGUN.match(self._sentences.text, match.end()) is None:
            return None
        return match.end()

    def _words(self, span: Span) -> Sequence[Span]:
        text, limit = self._sentences.text, self._limit
        words = parts_between(text, span, word_ends(text, span))
        return pack((one for word in words for one in split_span(text, word, limit, INSIDE_WORDS)), limit)

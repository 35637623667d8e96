"""Split a text into pieces, also while it arrives: a piece is yielded once later text cannot change it."""

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise

from .arriving import NEXT_BEGUN, ArrivingSentences
from .split import CLOSERS

CLAUSE_END = re.compile(rf"[,;:—–]{CLOSERS}(?=\s)|[，、；：]{CLOSERS}")
WORD_END = re.compile(r"(?=\s)")
WORD_TO_SPARE = 8
SENTENCE, CLAUSES, WORDS = range(3)  # where a sentence is cut: nowhere, at the ends of clauses, between words


def split_text(text: str, max_chars: int = 400) -> list[str]:
    """Split ``text`` into pieces of at most ``max_chars`` characters; 0 never splits.

    Pieces take as many sentences as fit (. ! ? … and their Chinese and Japanese forms, or a new line; not after
    "Dr.", nor after "U.S." unless a word such as "She" follows; closing quotes stay with their sentence). A longer
    sentence is split at commas, semicolons, colons and dashes, then between words, and as a last resort after
    ``max_chars`` characters. Only white space at the edges of pieces is dropped.
    """
    if not text.strip():
        raise ValueError("text is empty: type what is to be spoken")
    if max_chars < 0:
        raise ValueError(f"max_chars is {max_chars}: give the longest piece in characters, or 0 to never split")
    return list(split_arriving([(text, True)], max_chars))


def cut_text(text: str, longest: int) -> list[str]:
    """Return the pieces of ``split_text`` with the white space around them: joined, they are the text."""
    return list(_pack(_Cutter(longest).cut([(text, True)]), longest))


def split_arriving(parts: Iterable[tuple[str, bool]], max_chars: int) -> Iterator[str]:
    """Yield the pieces (``split_text``) of a text that comes in parts, each with whether a sentence ends with it.

    A sentence must not begin with a lower-case letter or a digit, as the normalizer ensures. Only a piece or two are
    buffered; of a longer part without a comma ``even_from`` characters, since its pieces are of similar length.
    """
    limit = max_chars or sys.maxsize
    for piece in _pack(_Cutter(limit).cut(parts), limit):
        if words := piece.strip():
            yield words


class _Cutter:
    """Cuts a text into parts of at most ``limit`` characters: sentences, or parts of long ones."""

    # Parts, here and below, include the white space around them: joined, they are the text.

    def __init__(self, limit: int):
        self._limit = limit
        # From this length on, equal parts of a text, plus WORD_TO_SPARE, are as long as the limit.
        self.even_from = limit * -(-limit // WORD_TO_SPARE)
        self._given = 0  # characters of the open sentence
        self._level = SENTENCE  # of the open sentence; another one if it is too long

    def cut(self, parts: Iterable[tuple[str, bool]]) -> Iterator[str]:
        sentences = ArrivingSentences()
        for number, (text, ends) in enumerate((text, ends) for text, ends in parts if text):
            spaced = f" {text}" if number else text
            for sentence in [*sentences.add(spaced), *(sentences.close() if ends else ())]:
                yield from self._end(sentence)
            yield from self._go_on(sentences.rest, sentences.rest[: sentences.certain].rstrip())
        for sentence in sentences.end():
            yield from self._end(sentence)

    def _end(self, sentence: str) -> Iterator[str]:
        rest, level = sentence[self._given :], self._level
        self._given, self._level = 0, SENTENCE
        if level == SENTENCE and len(rest.strip()) <= self._limit:
            yield rest
            return
        clauses = _between(rest, (match.end() for match in CLAUSE_END.finditer(rest)))
        if level == WORDS:
            yield from _words(next(clauses), self._limit, self._limit)
        for clause in clauses:
            yield from _even(clause, self._limit)

    def _go_on(self, text: str, known: str) -> Iterator[str]:
        """Yield parts of the open sentence if it is too long; ``known`` is its beginning that is certain."""
        if self._level == SENTENCE and len(known.lstrip()) > self._limit:
            self._level = CLAUSES
        if self._level == SENTENCE:
            return
        while (match := CLAUSE_END.search(known, self._given)) and NEXT_BEGUN.match(text, match.end()):
            clause = known[self._given : match.end()]
            is_begun, self._given, self._level = self._level == WORDS, match.end(), CLAUSES
            yield from _words(clause, self._limit, self._limit) if is_begun else _even(clause, self._limit)
        rest = known[self._given :]
        if len(rest.lstrip()) > self.even_from:
            self._level = WORDS
        if self._level == WORDS:
            for part in _words(rest, self._limit, self._limit)[:-1]:
                self._given += len(part)
                yield part


def _even(clause: str, limit: int) -> list[str]:
    """Return a clause, or parts of similar length if it is too long: a single last word would sound cut off."""
    length = len(clause.strip())
    if length <= limit:
        return [clause]
    count = -(-length // limit)
    return _words(clause, limit, min(limit, -(-length // count) + WORD_TO_SPARE))


def _words(text: str, limit: int, longest: int) -> list[str]:
    """Return parts of at most ``longest`` characters, cut between words, and within those longer than ``limit``."""
    words = _between(text, (match.end() for match in WORD_END.finditer(text)))
    return list(_pack((part for word in words for part in _slices(word, limit)), longest))


def _slices(word: str, limit: int) -> Iterator[str]:
    begin = len(word) - len(word.lstrip())
    return _between(word, range(begin + limit, len(word), limit))


def _between(text: str, cuts: Iterable[int]) -> Iterator[str]:
    return (text[begin:end] for begin, end in pairwise([0, *cuts, len(text)]))


def _pack(parts: Iterable[str], limit: int) -> Iterator[str]:
    packed = ""
    for part in parts:
        if packed and not packed.isspace() and len((packed + part).strip()) > limit:
            yield packed
            packed = ""
        packed += part
    if packed:
        yield packed

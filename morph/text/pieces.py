"""Split a text into sentences and pieces, also while it arrives, however its parts are cut.

A sentence or a piece is given once later text cannot change it.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from .pronunciation import is_mark_begun, join_marks
from .split import CLOSERS, Mark, sentence_marks

NOTE_BEGUN = r"\[\d{0,3}\Z"  # a note's mark, without its end: it belongs to the sentence before it
NOTE_BEGUN_BEHIND_MARK = re.compile(rf"(?<![.!?…])[.!?…]+{CLOSERS}{NOTE_BEGUN}")
LONGEST_WORD = 32  # of the next word, which decides whether a sentence ends before it
NEXT_BEGUN = re.compile(rf"\s*(?!{NOTE_BEGUN})\S")
NEXT_WHOLE = re.compile(rf"\s*(?:\S+\s|\S{{{LONGEST_WORD}}})")
LONGEST_WAIT = 1000  # characters after a mark: rescanning them for each part costs little
MOST_UNREAD = 20_000  # characters of a text that are not spoken yet; then its iterator is not read further
MOST_HELD = 8  # sentences within one <shown|read>
RESCAN_SHARE = 16  # beyond LONGEST_WAIT, a sixteenth more must arrive before the next scan
CLAUSE_END = re.compile(rf"[,;:—–]{CLOSERS}(?=\s)|[，、；：]{CLOSERS}")
WORD_END = re.compile(r"(?=\s)")
WORD_TO_SPARE = 8
SENTENCE, CLAUSES, WORDS = range(3)  # where a sentence is cut: nowhere, at the ends of clauses, between words


class ArrivingSentences:
    """Cuts a text that arrives in parts into sentences, once later text cannot change their ends.

    An end is certain when the next sentence begins, or at a new line: "3." may become "3.14", and a quotation may be
    followed by "he said". Joined, the sentences are the text. The time is linear in its length. ``rest`` is the open
    sentence.
    """

    def __init__(self) -> None:
        self.rest = ""
        self.certain = 0  # no mark before this position can end a sentence any more
        self._scanned = 0  # the length of the rest at the last scan

    def add(self, part: str) -> list[str]:
        """Add the next part of the text; return the sentences that are now certain."""
        self.rest += part
        waiting, new = self._scanned - self.certain, len(self.rest) - self._scanned
        # Only a long run of spaces or marks waits so long. To rescan it for each part would take quadratic time.
        if waiting > LONGEST_WAIT and new * RESCAN_SHARE < waiting:
            return []
        return self._scan()

    def close(self) -> list[str]:
        """Return all sentences if the rest ends one, given that the next begins with a capital letter or a sign."""
        ends = self._ends_of(f"{self.rest} A")
        return self._cut(ends) if ends and ends[-1] == len(self.rest) else []

    def end(self) -> list[str]:
        return self._cut([*self._ends_of(self.rest), len(self.rest)])

    def _ends_of(self, text: str) -> list[int]:
        return [mark.end for mark in sentence_marks(text, 0, (self.certain, len(text))) if mark.is_end]

    def _cut(self, ends: Sequence[int]) -> list[str]:
        found = [self.rest[begin:end] for begin, end in pairwise([0, *ends])]
        last = ends[-1] if ends else 0
        self.rest = self.rest[last:]
        self.certain, self._scanned = max(0, self.certain - last), max(0, self._scanned - last)
        return found

    def _scan(self) -> list[str]:
        text = self.rest
        ends: list[int] = []
        undecided: list[Mark] = []
        begun = NOTE_BEGUN_BEHIND_MARK.search(text, self.certain)
        scanned = begun.start() if begun else len(text)
        for mark in sentence_marks(text, 0, (self.certain, len(text))):
            behind = NEXT_BEGUN if mark.is_end else NEXT_WHOLE
            if text[mark.end - 1] != "\n" and not behind.match(text, mark.end):
                undecided.append(mark)
            elif mark.is_end:
                ends += [*(one.end for one in undecided if one.is_end), mark.end]
                undecided = []
        self._scanned = len(text)
        self.certain = min(scanned, undecided[0].start) if undecided else scanned
        return self._cut(ends)


class Sentences:
    """The stripped sentences of a text that arrives in parts.

    Sentences within one ``<shown|read>`` stay together: they are held back while one may be open.
    """

    too_long = f"a sentence of the text is longer than {MOST_UNREAD} characters: end it"

    def __init__(self) -> None:
        self._sentences = ArrivingSentences()
        self._held: list[str] = []

    def add(self, part: str) -> list[str]:
        return self._join(self._sentences.add(part))

    def end(self) -> list[str]:
        found = self._join(self._sentences.end())
        return [*found, *join_marks(self._held)]

    @property
    def unfinished(self) -> int:
        return len(self._sentences.rest)

    def _join(self, sentences: Sequence[str]) -> list[str]:
        found: list[str] = []
        for sentence in filter(None, map(str.strip, sentences)):
            self._held.append(sentence)
            if len(self._held) == MOST_HELD or not is_mark_begun(" ".join(self._held)):
                found += join_marks(self._held)
                self._held = []
        return found


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

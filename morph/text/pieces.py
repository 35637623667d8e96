"""Split a text into sentences and pieces, also while it arrives, however its parts are cut.

A sentence or a piece is given once later text cannot change it.
"""

import re
import sys
from collections.abc import Iterable, Sequence

from .pronunciation import is_mark_begun, join_marks
from .split import CLOSERS, Mark, cut_at, sentence_marks

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

    def add(self, part: str, ends: bool = False) -> list[str]:
        """Add the next part of the text; return the sentences that are now certain.

        ``ends``: the part after it begins with a capital letter or a sign, so a sentence may end with this one.
        """
        self.rest += part
        if ends:
            found = [mark.end for mark in sentence_marks(f"{self.rest} A", self.certain) if mark.is_end]
            if found and found[-1] == len(self.rest):
                return self._cut(found)
        waiting, new = self._scanned - self.certain, len(self.rest) - self._scanned
        # Only a long run of spaces or marks waits so long. To rescan it for each part would take quadratic time.
        if waiting > LONGEST_WAIT and new * RESCAN_SHARE < waiting:
            return []
        found, undecided = [], list[Mark]()
        begun = NOTE_BEGUN_BEHIND_MARK.search(self.rest, self.certain)
        for mark in sentence_marks(self.rest, self.certain):
            behind = NEXT_BEGUN if mark.is_end else NEXT_WHOLE
            if self.rest[mark.end - 1] != "\n" and not behind.match(self.rest, mark.end):
                undecided.append(mark)
            elif mark.is_end:
                found += [*(one.end for one in undecided if one.is_end), mark.end]
                undecided = []
        self._scanned = len(self.rest)
        self.certain = min([begun.start() if begun else len(self.rest), *(mark.start for mark in undecided[:1])])
        return self._cut(found)

    def end(self) -> list[str]:
        return self._cut(
            [*(mark.end for mark in sentence_marks(self.rest, self.certain) if mark.is_end), len(self.rest)]
        )

    def _cut(self, ends: Sequence[int]) -> list[str]:
        *found, self.rest = cut_at(self.rest, ends)
        last = ends[-1] if ends else 0
        self.certain, self._scanned = max(0, self.certain - last), max(0, self._scanned - last)
        return found


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
    return list(filter(None, map(str.strip, cut_text(text, max_chars))))


def cut_text(text: str, longest: int) -> list[str]:
    """Return the pieces of ``split_text`` with the white space around them: joined, they are the text."""
    pieces = ArrivingPieces(longest)
    return list(filter(None, [*pieces.add(text), *pieces.end()]))


class ArrivingPieces:
    """Cuts a text that arrives in parts into the pieces of ``split_text``, once later text cannot change them.

    ``limit`` is their longest, 0 for any. Only a piece or two are buffered; of a longer part without a comma
    ``even_from`` characters, since its pieces are of similar length.
    """

    # Sentences, parts of long ones, and pieces include the white space around them: joined, they are the text.

    def __init__(self, limit: int):
        self._limit = limit = limit or sys.maxsize
        # From this length on, equal parts of a text, plus WORD_TO_SPARE, are as long as the limit.
        self.even_from = limit * -(-limit // WORD_TO_SPARE)
        self._sentences = ArrivingSentences()
        self._given = 0  # characters of the open sentence
        self._level = SENTENCE  # of the open sentence; another one if it is too long
        self._open = ""  # the last piece, which may get longer

    def add(self, text: str, ends: bool = True) -> list[str]:
        """Add a part, with a space between it and the one before; return the pieces that are now certain.

        ``ends``: whether a sentence ends with it. None may begin with a lower-case letter or a digit, as the
        normalizer ensures.
        """
        if not text:
            return []
        sentences = self._sentences
        found = sentences.add(f" {text}" if self._open or sentences.rest else text, ends)
        parts = [part for sentence in found for part in self._end(sentence)]
        parts += self._go_on(sentences.rest, sentences.rest[: sentences.certain].rstrip())
        *pieces, self._open = _pack([self._open, *parts], self._limit)
        return pieces

    def end(self) -> list[str]:
        """Return the pieces that are left."""
        parts = [part for sentence in self._sentences.end() for part in self._end(sentence)]
        return _pack([self._open, *parts], self._limit)

    def _end(self, sentence: str) -> list[str]:
        """Return the parts of a sentence, or of its rest if some are given already."""
        rest, level = sentence[self._given :], self._level
        self._given, self._level = 0, SENTENCE
        if level == SENTENCE and len(rest.strip()) <= self._limit:
            return [rest]
        clauses = cut_at(rest, (match.end() for match in CLAUSE_END.finditer(rest)))
        begun = _words(clauses.pop(0), self._limit, self._limit) if level == WORDS else []
        return [*begun, *(part for clause in clauses for part in _even(clause, self._limit))]

    def _go_on(self, text: str, known: str) -> list[str]:
        """Return parts of the open sentence if it is too long; ``known`` is its beginning that is certain."""
        if self._level == SENTENCE and len(known.lstrip()) > self._limit:
            self._level = CLAUSES
        if self._level == SENTENCE:
            return []
        parts: list[str] = []
        while (match := CLAUSE_END.search(known, self._given)) and NEXT_BEGUN.match(text, match.end()):
            clause = known[self._given : match.end()]
            is_begun, self._given, self._level = self._level == WORDS, match.end(), CLAUSES
            parts += _words(clause, self._limit, self._limit) if is_begun else _even(clause, self._limit)
        rest = known[self._given :]
        if len(rest.lstrip()) > self.even_from:
            self._level = WORDS
        if self._level == WORDS:
            words = _words(rest, self._limit, self._limit)[:-1]
            self._given += sum(map(len, words))
            parts += words
        return parts


def _even(clause: str, limit: int) -> list[str]:
    """Return a clause, or parts of similar length if it is too long: a single last word would sound cut off."""
    length = len(clause.strip())
    if length <= limit:
        return [clause]
    count = -(-length // limit)
    return _words(clause, limit, min(limit, -(-length // count) + WORD_TO_SPARE))


def _words(text: str, limit: int, longest: int) -> list[str]:
    """Return parts of at most ``longest`` characters, cut between words, and within those longer than ``limit``."""
    parts: list[str] = []
    for word in cut_at(text, (match.end() for match in WORD_END.finditer(text))):
        begin = len(word) - len(word.lstrip())
        parts += cut_at(word, range(begin + limit, len(word), limit))
    return _pack(parts, longest)


def _pack(parts: Iterable[str], limit: int) -> list[str]:
    """Join parts as long as they fit; return one or more."""
    packed = [""]
    for part in parts:
        if packed[-1].strip() and len((packed[-1] + part).strip()) > limit:
            packed.append("")
        packed[-1] += part
    return packed

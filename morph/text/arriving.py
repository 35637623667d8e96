"""Cut a text that arrives in parts into sentences, however the parts are cut."""

import re
from collections.abc import Sequence
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
            if not _is_decided(text, mark):
                undecided.append(mark)
            elif mark.is_end:
                ends += [*(one.end for one in undecided if one.is_end), mark.end]
                undecided = []
        self._scanned = len(text)
        self.certain = min(scanned, undecided[0].start) if undecided else scanned
        return self._cut(ends)


def _is_decided(text: str, mark: Mark) -> bool:
    if text[mark.end - 1] == "\n":
        return True
    behind = NEXT_BEGUN if mark.is_end else NEXT_WHOLE
    return behind.match(text, mark.end) is not None


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

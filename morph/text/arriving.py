"""Texts that arrive in parts: complete sentences, however the parts are cut."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from .pronunciation import is_mark_begun, join_marks
from .split import CLOSERS, Mark, sentence_marks

NOTE_BEGUN = r"\[\d{0,3}\Z"  # a note's mark, without its end: it belongs to the sentence before it
NOTE_BEGUN_BEHIND_MARK = re.compile(rf"(?<![.!?…])[.!?…]+{CLOSERS}{NOTE_BEGUN}")
LONGEST_WORD = 32  # of those that decide whether a sentence ends before them
NEXT_BEGUN = re.compile(rf"\s*(?!{NOTE_BEGUN})\S")
NEXT_WHOLE = re.compile(rf"\s*(?:\S+\s|\S{{{LONGEST_WORD}}})")
LONGEST_WAIT = 1000  # characters after a mark: a look at each part of them costs little
MOST_UNREAD = 20_000  # characters of a text that are not spoken yet; the iterator waits for speech
MOST_HELD = 8  # sentences within one <shown|read>
WAITS = 16  # beyond that, a share of them has to come before the next look


class SentenceEnds:
    """Finds the sentence ends of a text that arrives in parts, when later text cannot change them.

    That is where the next sentence begins, or at a new line: "3." may go on as "3.14", and a quotation with "he
    said". The work is linear in the length of the text. ``begin`` is the start of the open sentence in ``text``.
    """

    def __init__(self) -> None:
        self.text = ""
        self.begin = 0
        self._looked = 0  # no mark before this can end a sentence any more
        self._seen = 0  # the length of the text when it was looked at last

    def add(self, part: str) -> list[int]:
        """Add the next part of the text; return the ends that are now certain, in order."""
        self.text += part
        waiting, new = self._seen - self._looked, len(self.text) - self._seen
        # Only a long run of spaces or marks waits so long. A look at all of it for each part would take quadratic time.
        if waiting > LONGEST_WAIT and new * WAITS < waiting:
            return []
        return self._look()

    def close(self) -> list[int]:
        """Return the ends that are certain if the next sentence begins with a capital letter or a sign."""
        ends = self._ends_of(f"{self.text} A")
        if not ends or ends[-1] != len(self.text):
            return []
        self._go_on(ends[-1])
        return ends

    def end(self) -> list[int]:
        """Return the remaining ends; the last one is the text's."""
        ends = self._ends_of(self.text)
        self._go_on(len(self.text))
        return [*ends, len(self.text)]

    def drop(self, count: int) -> None:
        self.text = self.text[count:]
        self.begin, self._looked, self._seen = self.begin - count, self._looked - count, self._seen - count

    @property
    def certain(self) -> int:
        """The position before which no further sentence can end."""
        return self._looked

    def _ends_of(self, text: str) -> list[int]:
        marks = sentence_marks(text, self.begin, (self._looked, len(text)))
        return [mark.end for mark in marks if mark.is_end]

    def _go_on(self, end: int) -> None:
        self.begin = self._looked = self._seen = end

    def _look(self) -> list[int]:
        text = self.text
        ends: list[int] = []
        undecided: list[Mark] = []
        begun = NOTE_BEGUN_BEHIND_MARK.search(text, self._looked)
        looked = begun.start() if begun else len(text)
        for mark in sentence_marks(text, self.begin, (self._looked, len(text))):
            if not _is_decided(text, mark):
                undecided.append(mark)
            elif mark.is_end:
                ends += [*(one.end for one in undecided if one.is_end), mark.end]
                undecided = []
        if ends:
            self.begin = ends[-1]
        self._seen = len(text)
        self._looked = min(looked, undecided[0].start) if undecided else looked
        return ends


def _is_decided(text: str, mark: Mark) -> bool:
    if text[mark.end - 1] == "\n":
        return True
    behind = NEXT_BEGUN if mark.is_end else NEXT_WHOLE
    return behind.match(text, mark.end) is not None


class Sentences:
    """Cuts a text into the sentences of ``split_sentences``, each when its end is certain (``SentenceEnds``).

    Sentences that a ``<shown|read>`` joins stay together, and those within a possible one wait for its end.
    """

    too_long = f"a sentence of the text is longer than {MOST_UNREAD} characters: end it"

    def __init__(self) -> None:
        self._ends = SentenceEnds()
        self._held: list[str] = []

    def add(self, part: str) -> list[str]:
        return self._cut(self._ends.add(part))

    def end(self) -> list[str]:
        found = self._cut(self._ends.end())
        return [*found, *join_marks(self._held)]

    @property
    def unfinished(self) -> int:
        return len(self._ends.text)

    def _cut(self, ends: Sequence[int]) -> list[str]:
        found: list[str] = []
        for begin, end in pairwise([0, *ends]):
            if sentence := self._ends.text[begin:end].strip():
                self._held.append(sentence)
                if len(self._held) == MOST_HELD or not is_mark_begun(" ".join(self._held)):
                    found += join_marks(self._held)
                    self._held = []
        if ends:
            self._ends.drop(ends[-1])
        return found

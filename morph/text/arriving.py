"""Texts that arrive in parts: complete characters and sentences, however the parts are cut."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .encoding import join_halves
from .split import CLOSERS, Mark, sentence_marks

NOTE_BEGUN = r"\[\d{0,3}\Z"  # a note's mark, without its end: it belongs to the sentence before it
NOTE_BEGUN_BEHIND_MARK = re.compile(rf"(?<![.!?…])[.!?…]+{CLOSERS}{NOTE_BEGUN}")
LONGEST_WORD = 32  # of those that decide whether a sentence ends before them
NEXT_BEGUN = re.compile(rf"\s*(?!{NOTE_BEGUN})\S")
NEXT_WHOLE = re.compile(rf"\s*(?:\S+\s|\S{{{LONGEST_WORD}}})")
LONGEST_WAIT = 1000  # characters after a mark: a look at each part of them costs little
WAITS = 16  # beyond that, a share of them has to come before the next look
HIGH_HALVES = ("\ud800", "\udbff")  # first halves of characters that UTF-16 writes as two


class Characters:
    """Joins surrogate pairs that come in two parts, as emoji do from a source that counts in UTF-16."""

    def __init__(self) -> None:
        self._half = ""

    def add(self, part: str) -> str:
        """Return the complete characters so far; a first half at the end waits for its second."""
        text, self._half = self._half + part, ""
        if text and HIGH_HALVES[0] <= text[-1] <= HIGH_HALVES[1]:
            text, self._half = text[:-1], text[-1]
        return join_halves(text)

    def end(self) -> str:
        half, self._half = self._half, ""
        return half


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
    """Cuts a text into the sentences of ``split_sentences``, each when its end is certain (``SentenceEnds``)."""

    def __init__(self) -> None:
        self._ends = SentenceEnds()

    def add(self, part: str) -> list[str]:
        return self._cut(self._ends.add(part))

    def end(self) -> list[str]:
        return self._cut(self._ends.end())

    @property
    def unfinished(self) -> int:
        return len(self._ends.text)

    def _cut(self, ends: Sequence[int]) -> list[str]:
        begins = [0, *ends[:-1]]
        parts = [self._ends.text[begin:end].strip() for begin, end in zip(begins, ends, strict=False)]
        if ends:
            self._ends.drop(ends[-1])
        return [part for part in parts if part]

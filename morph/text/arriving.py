"""Texts that come in parts: whole characters and whole sentences, however the parts are cut."""

from __future__ import annotations

import re

from .encoding import join_halves
from .split import sentence_ends, split_sentences

NOTE_BEGUN = re.compile(r"\[\d{0,3}")  # a note's mark, without its end: it belongs to the sentence before it
HIGH_HALVES = ("\ud800", "\udbff")  # first halves of characters that UTF-16 writes as two


class Characters:
    """Joins halves of characters that come in two parts, as emoji do from a source that counts in UTF-16."""

    def __init__(self) -> None:
        self._half = ""

    def add(self, part: str) -> str:
        """Return the whole characters that are there now; a first half at the end waits for its second."""
        text, self._half = self._half + part, ""
        if text and HIGH_HALVES[0] <= text[-1] <= HIGH_HALVES[1]:
            text, self._half = text[:-1], text[-1]
        return join_halves(text)

    def end(self) -> str:
        """Return what is left: a half without its other half, or nothing."""
        half, self._half = self._half, ""
        return half


class Sentences:
    """Cuts a text into the sentences of ``split_sentences``, each as soon as what follows cannot change its end.

    That is where the next sentence begins, or at a new line: "3." may go on as "3.14", and a quotation with "he said".
    """

    def __init__(self) -> None:
        self._text = ""

    def add(self, part: str) -> list[str]:
        """Take a part of the text; return the sentences that are complete now."""
        self._text += part
        certain = 0
        for end in sentence_ends(self._text, (0, len(self._text))):
            behind = self._text[end:].strip()
            if self._text[end - 1] == "\n" or (behind and not NOTE_BEGUN.fullmatch(behind)):
                certain = end
        sentences = split_sentences(self._text[:certain])
        self._text = self._text[certain:]
        return sentences

    def end(self) -> list[str]:
        """Return the sentences of what is left."""
        text, self._text = self._text, ""
        return split_sentences(text)

"""Normalize a line's text and cut it into pieces, without prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..text.normalize import Normalizer, SpokenText, join_spoken
from ..text.pauses import read_pauses, without_pauses
from ..text.pieces import split_arriving
from ..text.pronunciation import mark_notes
from .lines import Line
from .piece import Piece


class LineCutter:
    """Cuts the text of a line, complete or sentence by sentence, into pieces of at most ``limit`` characters.

    Piece k has the line's seed plus k. ``silence`` is the seconds of silence before the next piece.
    """

    def __init__(self, line: Line, limit: int):
        self._line, self._limit = line, limit
        self._pieces = 0
        self._written: list[str] = []  # the parts between pauses, as they are read
        self._said: list[SpokenText] = []
        self._unread = 0
        self.silence = 0.0

    def cut(self, text: str, normalizer: Normalizer) -> Iterator[Piece]:
        """Yield the pieces of the next text, each before the rest is normalized. Pieces do not cross its end."""
        paused = read_pauses(self._line.as_read(text))
        self._unread = len(paused.parts)
        for part, pause_s in zip(paused.parts, paused.pauses_s, strict=False):
            self.silence += pause_s
            for words in split_arriving(self._write_out(part, normalizer), self._limit):
                if any(char.isalnum() for char in words):
                    yield self._piece(normalizer.close(words))
        self.silence += paused.pauses_s[-1]

    def _write_out(self, part: str, normalizer: Normalizer) -> Iterator[tuple[str, bool]]:
        self._written.append(part)
        for said in normalizer.parts(part, self._line.language):
            self._said.append(said)
            yield said.text, said.ends
        self._unread -= 1

    def _piece(self, words: str) -> Piece:
        piece = Piece(words, self._line.seed + self._pieces, self._pieces + 1, self.silence)
        self._pieces, self.silence = self._pieces + 1, 0.0
        return piece

    @property
    def is_read(self) -> bool:
        """Whether the text so far is normalized, so that no piece of it is far."""
        return not self._unread

    def said(self, text: str) -> SpokenText:
        """Return the line's ``text`` as spoken: without pauses if no word differs; else as far as it is normalized."""
        said = join_spoken(self._said)
        if not self.is_read:
            return said
        if said.text.split() == " ".join(self._written).split():
            said = replace(said, text=without_pauses(self._line.as_read(text)))
        return replace(said, notes=(*said.notes, *mark_notes(text)))


def cut_line(line: Line, normalizer: Normalizer, limit: int) -> tuple[SpokenText, list[Piece]]:
    """Return a complete text as spoken, and its pieces, without prompts."""
    cutter, text = LineCutter(line, limit), str(line.text)
    pieces = list(cutter.cut(text, normalizer))
    end_pieces(pieces, cutter.silence)
    return cutter.said(text), pieces


def end_pieces(pieces: Sequence[Piece], after_s: float) -> None:
    """Note that these are all pieces: later takes' seeds depend on it. ``after_s``: silence after the last."""
    for piece in pieces:
        piece.stride = len(pieces)
    if pieces:
        pieces[-1].after_s = after_s

"""The batch codec for pieces that nobody hears while they are made: complete, many in one row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch

from ...model.finite import NotFinite
from ...speech.piece import Piece

log = logging.getLogger(__name__)

Decode = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor | None]], list[np.ndarray]]


class Wants(Protocol):
    """A line that wants samples of a piece."""

    @property
    def reference(self) -> torch.Tensor | None:
        """The codes of its ICL voice, or None."""

    def take_samples(self, piece: Piece, wave: np.ndarray) -> None:
        """Take them."""

    def lose_samples(self, error: NotFinite) -> None:
        """They are not finite."""


class WholeCodec:
    """Collects pieces whose codes are all there, and makes their samples together.

    Args:
        decode: codes and references of pieces to their samples.
    """

    def __init__(self, decode: Decode):
        self._decode = decode
        self._pieces: list[tuple[Wants, Piece]] = []

    def add(self, line: Wants, piece: Piece) -> None:
        """Collect a piece."""
        self._pieces.append((line, piece))

    def is_due(self, enough: int) -> bool:
        """Return whether this many pieces wait: enough for a call."""
        return len(self._pieces) >= enough

    def run(self, most: int | None = None) -> bool:
        """Make the samples of the pieces, of at most ``most``; return whether there was anything to make."""
        count = len(self._pieces) if most is None else most
        pieces, self._pieces = self._pieces[:count], self._pieces[count:]
        if not pieces:
            return False
        try:
            self._make(pieces)
        except NotFinite:
            log.warning("samples of a piece are not finite: each of %d is made by itself", len(pieces))
            for line, piece in pieces:
                try:
                    self._make([(line, piece)])
                except NotFinite as error:
                    line.lose_samples(error)
        return True

    def _make(self, pieces: Sequence[tuple[Wants, Piece]]) -> None:
        waves = self._decode(
            [piece.making.codes.part() for _, piece in pieces], [line.reference for line, _ in pieces]
        )
        for (line, piece), wave in zip(pieces, waves, strict=True):
            line.take_samples(piece, wave)

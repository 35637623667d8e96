"""The batch codec for pieces that nobody hears while they are made: complete, many in one row."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch

from ...model.finite import NotFinite
from ...speech.piece import Piece

log = logging.getLogger(__name__)

# A piece waits at most this many times as long as it takes to make, so that readers of other lines do not wait for it.
PATIENCE = 5
SMOOTHING = 0.8  # share of what was measured before in the mean time of a frame

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
        self._since = 0.0  # the first of them waits
        self._frame_s = 0.0  # measured

    def add(self, line: Wants, piece: Piece) -> None:
        """Collect a piece."""
        if not self._pieces:
            self._since = time.perf_counter()
        self._pieces.append((line, piece))

    @property
    def count(self) -> int:
        """How many pieces wait."""
        return len(self._pieces)

    @property
    def waited_s(self) -> float:
        """Seconds that the first piece has waited; 0 if there is none."""
        return time.perf_counter() - self._since if self._pieces else 0.0

    def fit(self, seconds: float) -> int:
        """Return how many of the pieces are likely to take less time than this; one that has waited long takes any."""
        takes, count = 0.0, 0
        for line, piece in self._pieces:
            takes += _frames(line, piece) * self._frame_s
            if takes > seconds:
                return count or int(self.waited_s > PATIENCE * takes)
            count += 1
        return count

    def run(self, most: int | None = None) -> bool:
        """Make the samples of the pieces, of at most ``most``; return whether there was anything to make."""
        count = len(self._pieces) if most is None else most
        pieces, self._pieces = self._pieces[:count], self._pieces[count:]
        if not pieces:
            return False
        self._since = began = time.perf_counter()
        try:
            self._make(pieces)
        except NotFinite:
            log.warning("samples of a piece are not finite: each of %d is made by itself", len(pieces))
            for line, piece in pieces:
                try:
                    self._make([(line, piece)])
                except NotFinite as error:
                    line.lose_samples(error)
        self._measure(pieces, time.perf_counter() - began)
        return True

    def _measure(self, pieces: Sequence[tuple[Wants, Piece]], seconds: float) -> None:
        frame_s = seconds / max(1, sum(_frames(line, piece) for line, piece in pieces))
        self._frame_s = SMOOTHING * self._frame_s + (1 - SMOOTHING) * frame_s if self._frame_s else frame_s

    def _make(self, pieces: Sequence[tuple[Wants, Piece]]) -> None:
        codes = [piece.making.codes.part() for _, piece in pieces]
        waves = self._decode(codes, [_before(line, piece) for line, piece in pieces])
        for (line, piece), wave in zip(pieces, waves, strict=True):
            line.take_samples(piece, wave)


def _frames(line: Wants, piece: Piece) -> int:
    """Return the frames that are decoded for a piece."""
    before = _before(line, piece)
    return len(piece.making.codes) + (0 if before is None else len(before))


def _before(line: Wants, piece: Piece) -> torch.Tensor | None:
    """Return the codes that are decoded before a piece: what it goes on from, or its voice's reference."""
    return line.reference if piece.context is None else piece.context.codes

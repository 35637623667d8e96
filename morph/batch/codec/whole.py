"""The batch codec for pieces that nobody hears while they are made: complete, many in one row."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

import numpy as np
import torch

from ...model.finite import NotFinite
from ...speech.piece import Piece
from ...waveform.in_flight import InFlight, Made

log = logging.getLogger(__name__)

# A piece waits at most this many times as long as it takes to make, so that readers of other lines do not wait for it.
PATIENCE = 5
# Pieces that are judged and joined between two frames, so that the device does not wait for it.
PASSED_ON = 3
SMOOTHING = 0.8  # share of what was measured before in the mean time of a frame

Begin = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor | None]], InFlight]


class Wants(Protocol):
    """A line that wants samples of a piece."""

    @property
    def reference(self) -> torch.Tensor | None:
        """The codes of its ICL voice, or None."""

    def take_samples(self, piece: Piece, wave: np.ndarray) -> None:
        """Take them."""

    def lose_samples(self, error: NotFinite) -> None:
        """They are not finite."""


_Wanted: TypeAlias = "tuple[Wants, Piece]"


class WholeCodec:
    """Collects pieces whose codes are all there, and makes their samples together.

    Args:
        begin: begins to make the samples of pieces from their codes and references.
    """

    def __init__(self, begin: Begin):
        self._begin = begin
        self._pieces: list[_Wanted] = []
        self._made: tuple[list[_Wanted], InFlight] | None = None  # what the device makes now
        self._since = 0.0  # the first of the pieces waits
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

    @property
    def is_making(self) -> bool:
        """Whether samples are being made."""
        return self._made is not None

    def run(self, most: int | None = None) -> bool:
        """Make the samples of the pieces, of at most ``most``; return whether there was anything to make."""
        made = self.collect(wait=True)
        frames = sum(_frames(*one) for one in self._pieces[:most])
        began = time.perf_counter()
        if not self.start(most):
            return made
        self.collect(wait=True)
        self._measure(frames, time.perf_counter() - began)
        return True

    def start(self, most: int | None = None) -> bool:
        """Begin as ``run`` does, without waiting for the device; return whether there was anything to begin."""
        self.collect(wait=True)
        count = len(self._pieces) if most is None else most
        pieces, self._pieces = self._pieces[:count], self._pieces[count:]
        if not pieces:
            return False
        self._since = time.perf_counter()
        with self._each_alone(pieces):
            self._made = pieces, self._begin_all(pieces)
        return True

    def _begin_all(self, pieces: Sequence[_Wanted]) -> InFlight:
        codes = [piece.making.codes.part() for _, piece in pieces]
        return self._begin(codes, [_before(*one) for one in pieces])

    def collect(self, wait: bool = False) -> bool:
        """Pass on samples that were begun, if the device has made them; return whether it has.

        ``wait``: wait for it, and pass on all; otherwise a few at a time.
        """
        made, self._made = self._made, None
        if made is None:
            return False
        pieces, making = made
        with self._each_alone(pieces):
            if not (wait or making.look()):
                self._made = made
                return False
            waves, now = making.result(), len(pieces) if wait else PASSED_ON
            if pieces[now:]:
                self._made = pieces[now:], Made(waves[now:])
            _pass_on(pieces[:now], waves[:now])
        return True

    @contextmanager
    def _each_alone(self, pieces: Sequence[_Wanted]) -> Iterator[None]:
        """Make each of these pieces by itself, at once, if there are samples that are not finite."""
        try:
            yield
        except NotFinite:
            log.warning("samples of a piece are not finite: each of %d is made by itself", len(pieces))
            for one in pieces:
                try:
                    _pass_on([one], self._begin_all([one]).result())
                except NotFinite as error:
                    one[0].lose_samples(error)

    def _measure(self, frames: int, seconds: float) -> None:
        frame_s = seconds / max(1, frames)
        self._frame_s = SMOOTHING * self._frame_s + (1 - SMOOTHING) * frame_s if self._frame_s else frame_s


def _pass_on(pieces: Sequence[_Wanted], waves: Sequence[np.ndarray]) -> None:
    for (line, piece), wave in zip(pieces, waves, strict=True):
        line.take_samples(piece, wave)


def _frames(line: Wants, piece: Piece) -> int:
    """Return the frames that are decoded for a piece."""
    before = _before(line, piece)
    return len(piece.making.codes) + (0 if before is None else len(before))


def _before(line: Wants, piece: Piece) -> torch.Tensor | None:
    """Return the codes that are decoded before a piece: what it goes on from, or its voice's reference."""
    return line.reference if piece.context is None else piece.context.codes

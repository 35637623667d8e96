"""Run the batch codec on offline pieces, many in one row; the loop takes their samples."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from ...model.finite import NotFinite
from ...options import MOST_LINES
from ...speech.pieces import Piece
from ...waveform.engine import InFlight, take_all

log = logging.getLogger(__name__)

# A piece waits at most this many times as long as it takes to decode: readers of other lines come first until then.
PATIENCE = 5
SMOOTHING = 0.8  # weight of earlier measurements in the mean frame time

Begin = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor | None]], InFlight]


@dataclass(frozen=True, eq=False, slots=True)
class CodedPiece:
    """A fully coded piece of a line, ``owner``; ``reference``: the codes of its ICL voice."""

    owner: Any
    piece: Piece
    reference: torch.Tensor | None = None

    @property
    def length(self) -> int:
        return len(self.piece.frames) + (0 if self.reference is None else len(self.reference))


Made: TypeAlias = "tuple[CodedPiece, np.ndarray | NotFinite]"
Work: TypeAlias = "Generator[Made | None, bool, float]"


class OfflineCodec:
    """Collects fully coded pieces and decodes at most ``together``; ``take`` returns one with its samples, or an error.

    Where the codec decodes lines one by one, other lines' frames come between them.
    """

    def __init__(self, begin: Begin, together: int = MOST_LINES):
        self._begin, self.together = begin, together
        self.waiting: list[CodedPiece] = []
        self._since = 0.0  # when the first piece was collected
        self._frame_s = 0.0  # measured mean
        self.work: Work | None = None  # the pieces that are being decoded

    def add(self, piece: CodedPiece) -> None:
        if not self.waiting:
            self._since = time.perf_counter()
        self.waiting.append(piece)

    @property
    def waited_s(self) -> float:
        return time.perf_counter() - self._since if self.waiting else 0.0

    def fit(self, seconds: float) -> int:
        """Return how many pieces are likely to take less time than this; a piece that has waited long fits always."""
        takes, count = 0.0, 0
        for one in self.waiting:
            takes += one.length * self._frame_s
            if takes > seconds:
                return count or int(self.waited_s > PATIENCE * takes)
            count += 1
        return count

    def start(self, most: int = MOST_LINES) -> None:
        """Begin to decode at most ``most`` pieces with the next ``take``; none may be in flight."""
        most = min(most, self.together)
        pieces, self.waiting = self.waiting[:most], self.waiting[most:]
        self._since, self.work = time.perf_counter(), _decode(self._begin, pieces)
        next(self.work)

    def take(self, wait: bool = False) -> Made | None:
        """Return a piece with its samples, or the error if they are not finite.

        None if there is none yet, or with ``wait`` if none is in flight.
        """
        try:
            while self.work is not None:
                if (made := self.work.send(wait)) is not None or not wait:
                    return made
        except StopIteration as end:
            weight = 1 - SMOOTHING if self._frame_s else 1.0
            self.work, self._frame_s = None, self._frame_s + weight * (end.value - self._frame_s)
        return None


def _decode(begin: Begin, pieces: Sequence[CodedPiece]) -> Work:
    """Yield pieces with their samples, or None while the device makes them; return the seconds per frame.

    It is sent whether to wait for the device.
    """
    wait, left, frames = (yield None), dict(enumerate(pieces)), sum(one.length for one in pieces)
    began = time.perf_counter()
    try:
        in_flight = _begin_all(begin, pieces)
        while left:
            waves, took_s = in_flight.take(wait), time.perf_counter() - began
            for index, wave in waves.items():
                wait = yield left.pop(index), wave
            if not waves:
                wait = yield None
    except NotFinite:
        log.warning("samples of a piece are not finite: each of %d is decoded alone", len(left))
        took_s = time.perf_counter() - began
        for piece in left.values():
            try:
                yield piece, take_all(_begin_all(begin, [piece]))[0]
            except NotFinite as error:
                yield piece, error
    return took_s / max(1, frames)


def _begin_all(begin: Begin, pieces: Sequence[CodedPiece]) -> InFlight:
    codes, references = zip(*((one.piece.frames.codes(), one.reference) for one in pieces), strict=True)
    return begin(codes, references)

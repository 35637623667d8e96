"""Run the batch codec on offline pieces, many in one row; the loop takes their samples."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...model.finite import NotFinite
from ...speech.pieces import Piece
from ...waveform.in_flight import InFlight, take_all

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


class OfflineCodec:
    """Collects fully coded pieces and decodes them together; ``take`` returns them one by one."""

    def __init__(self, begin: Begin):
        self._begin = begin
        self._waiting: list[CodedPiece] = []
        self._since = 0.0  # when the first piece was collected
        self._frame_s = 0.0  # measured mean
        self._in_flight: InFlight | None = None
        self._left: dict[int, CodedPiece] = {}  # of those in flight, by index
        self._finished = deque[tuple[CodedPiece, np.ndarray | NotFinite]]()

    def add(self, piece: CodedPiece) -> None:
        if not self._waiting:
            self._since = time.perf_counter()
        self._waiting.append(piece)

    @property
    def count(self) -> int:
        return len(self._waiting)

    @property
    def waited_s(self) -> float:
        return time.perf_counter() - self._since if self._waiting else 0.0

    def fit(self, seconds: float) -> int:
        """Return how many pieces are likely to take less time than this; a piece that has waited long fits always."""
        takes, count = 0.0, 0
        for one in self._waiting:
            takes += one.length * self._frame_s
            if takes > seconds:
                return count or int(self.waited_s > PATIENCE * takes)
            count += 1
        return count

    @property
    def is_decoding(self) -> bool:
        return bool(self._left or self._finished)

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting or self._left or self._finished)

    def run(self, most: int) -> None:
        """Decode at most ``most`` pieces, and wait for them; none may be in flight."""
        frames = sum(one.length for one in self._waiting[:most])
        began = time.perf_counter()
        self.start(most)
        while self._left:
            self._collect(wait=True)
        frame_s = (time.perf_counter() - began) / max(1, frames)
        self._frame_s = SMOOTHING * self._frame_s + (1 - SMOOTHING) * frame_s if self._frame_s else frame_s

    def start(self, most: int | None = None) -> None:
        """Begin to decode at most ``most`` pieces; none may be in flight."""
        pieces, self._waiting = self._waiting[:most], [] if most is None else self._waiting[most:]
        self._since, self._left = time.perf_counter(), dict(enumerate(pieces))
        self._collect(wait=False)

    def take(self, wait: bool = False) -> tuple[CodedPiece, np.ndarray | NotFinite] | None:
        """Return a piece with its samples, or the error if they are not finite.

        None if there is none yet, or with ``wait`` if none is in flight.
        """
        self._collect(wait=False)
        while wait and self._left and not self._finished:
            self._collect(wait=True)
        return self._finished.popleft() if self._finished else None

    def _begin_all(self, pieces: Iterable[CodedPiece]) -> InFlight:
        codes, references = zip(*((one.piece.frames.codes(), one.reference) for one in pieces), strict=True)
        return self._begin(codes, references)

    def _collect(self, wait: bool) -> None:
        if not self._left:
            return
        try:
            if self._in_flight is None:
                self._in_flight = self._begin_all(self._left.values())
            waves = self._in_flight.take(wait)
            self._finished += [(self._left.pop(index), wave) for index, wave in waves.items()]
        except NotFinite:
            log.warning("samples of a piece are not finite: each of %d is decoded alone", len(self._left))
            self._finished += [(one, self._decode_alone(one)) for one in self._left.values()]
            self._left.clear()
        if not self._left:
            self._in_flight = None

    def _decode_alone(self, piece: CodedPiece) -> np.ndarray | NotFinite:
        try:
            return take_all(self._begin_all([piece]))[0]
        except NotFinite as error:
            return error

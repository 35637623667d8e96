"""Run the batch codec on offline pieces, many in one row."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

import numpy as np
import torch

from ...model.finite import NotFinite
from ...speech.piece import Piece
from ...waveform.in_flight import InFlight, take_all

log = logging.getLogger(__name__)

# A piece waits at most this many times as long as it takes to decode: readers of other lines come first until then.
PATIENCE = 5
# Time for judging pieces between two frames, at least one piece: the device has frames to make meanwhile.
PASS_ON_S = 0.001
SMOOTHING = 0.8  # weight of earlier measurements in the mean frame time

Begin = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor | None]], InFlight]


class Wants(Protocol):
    """A line that wants the samples of a piece."""

    @property
    def reference(self) -> torch.Tensor | None:
        """The codes of its ICL voice, or None."""

    def take_samples(self, piece: Piece, wave: np.ndarray) -> None:
        """Accept the samples."""

    def lose_samples(self, error: NotFinite) -> None:
        """Note that the samples are not finite."""


_Wanted: TypeAlias = "tuple[Wants, Piece]"


class WholeCodec:
    """Collects fully coded pieces and decodes them together."""

    def __init__(self, begin: Begin):
        self._begin = begin
        self._pieces: list[_Wanted] = []
        self._making: _Making | None = None  # in flight
        self._since = 0.0  # when the first piece was collected
        self._frame_s = 0.0  # measured mean

    def add(self, line: Wants, piece: Piece) -> None:
        if not self._pieces:
            self._since = time.perf_counter()
        self._pieces.append((line, piece))

    @property
    def count(self) -> int:
        return len(self._pieces)

    @property
    def waited_s(self) -> float:
        return time.perf_counter() - self._since if self._pieces else 0.0

    def fit(self, seconds: float) -> int:
        """Return how many pieces are likely to take less time than this; a piece that has waited long fits always."""
        takes, count = 0.0, 0
        for line, piece in self._pieces:
            takes += _frames(line, piece) * self._frame_s
            if takes > seconds:
                return count or int(self.waited_s > PATIENCE * takes)
            count += 1
        return count

    @property
    def is_making(self) -> bool:
        return self._making is not None

    @property
    def is_busy(self) -> bool:
        return bool(self._pieces) or self._making is not None

    def run(self, most: int | None = None) -> None:
        """Decode at most ``most`` pieces and pass them on; none may be in flight."""
        frames = sum(_frames(*one) for one in self._pieces[:most])
        began = time.perf_counter()
        self.start(most)
        while self.is_making:
            self._pass_on(wait=True)
        self._measure(frames, time.perf_counter() - began)

    def start(self, most: int | None = None) -> None:
        """Begin to decode at most ``most`` pieces; none may be in flight."""
        count = len(self._pieces) if most is None else most
        pieces, self._pieces = self._pieces[:count], self._pieces[count:]
        if not pieces:
            return
        self._since = time.perf_counter()
        with self._each_alone(pieces):
            self._making = _Making(pieces, self._begin_all(pieces))

    def _begin_all(self, pieces: Sequence[_Wanted]) -> InFlight:
        codes = [piece.frames.codes() for _, piece in pieces]
        return self._begin(codes, [line.reference for line, _ in pieces])

    def collect(self) -> None:
        """Pass on some finished samples, without waiting."""
        self._pass_on(wait=False)

    def advance(self) -> bool:
        """Wait for the next samples, starting if nothing is in flight; return whether there were any."""
        wanted = self.is_making or bool(self._pieces)
        if not self.is_making:
            self.start()
        self._pass_on(wait=True)
        return wanted

    def _pass_on(self, wait: bool) -> None:
        """Pass on finished samples. ``wait``: for the next ones; otherwise for at most PASS_ON_S."""
        making, self._making = self._making, None
        if making is None:
            return
        until = math.inf if wait else time.perf_counter() + PASS_ON_S
        with self._each_alone(making.left.values()):
            making.take(wait)
            while making.pass_on() and time.perf_counter() < until:
                pass
            self._making = making if making.left else None

    @contextmanager
    def _each_alone(self, pieces: Collection[_Wanted]) -> Iterator[None]:
        try:
            yield
        except NotFinite:
            log.warning("samples of a piece are not finite: each of %d is made by itself", len(pieces))
            for line, piece in pieces:
                try:
                    [wave] = take_all(self._begin_all([(line, piece)]))
                    line.take_samples(piece, wave)
                except NotFinite as error:
                    line.lose_samples(error)

    def _measure(self, frames: int, seconds: float) -> None:
        frame_s = seconds / max(1, frames)
        self._frame_s = SMOOTHING * self._frame_s + (1 - SMOOTHING) * frame_s if self._frame_s else frame_s


class _Making:
    """Pieces that the device decodes; ``left`` are those not passed on yet."""

    def __init__(self, pieces: Sequence[_Wanted], in_flight: InFlight):
        self.left = dict(enumerate(pieces))
        self._in_flight, self._made = in_flight, deque[tuple[int, np.ndarray]]()

    def take(self, wait: bool) -> None:
        self._made.extend(self._in_flight.take(wait).items())

    def pass_on(self) -> bool:
        if not self._made:
            return False
        index, wave = self._made.popleft()
        line, piece = self.left.pop(index)
        line.take_samples(piece, wave)
        return True


def _frames(line: Wants, piece: Piece) -> int:
    return len(piece.frames) + (0 if line.reference is None else len(line.reference))

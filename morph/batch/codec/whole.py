"""The batch codec for pieces that nobody hears while they are made: complete, many in one row."""

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

# A piece waits at most this many times as long as it takes to make, so that readers of other lines do not wait for it.
PATIENCE = 5
# So long pieces are judged between two frames, at least one of them: the device has some frames to make meanwhile.
PASS_ON_S = 0.001
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
        self._making: _Making | None = None  # what the device makes now
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
        """Whether samples are being made, or have not been passed on."""
        return self._making is not None

    def run(self, most: int | None = None) -> None:
        """Make the samples of the pieces, of at most ``most``, and pass them on; none are being made."""
        frames = sum(_frames(*one) for one in self._pieces[:most])
        began = time.perf_counter()
        self.start(most)
        while self.is_making:
            self._pass_on(wait=True)
        self._measure(frames, time.perf_counter() - began)

    def start(self, most: int | None = None) -> None:
        """Begin to make the samples of the pieces, of at most ``most``; none are being made."""
        count = len(self._pieces) if most is None else most
        pieces, self._pieces = self._pieces[:count], self._pieces[count:]
        if not pieces:
            return
        self._since = time.perf_counter()
        with self._each_alone(pieces):
            self._making = _Making(pieces, self._begin_all(pieces))

    def _begin_all(self, pieces: Sequence[_Wanted]) -> InFlight:
        codes = [piece.making.codes.part() for _, piece in pieces]
        return self._begin(codes, [line.reference for line, _ in pieces])

    def collect(self) -> None:
        """Pass on some of the samples that the device has made; wait for none."""
        self._pass_on(wait=False)

    def advance(self) -> bool:
        """Wait for the next samples, of what was begun or is begun now; return whether there were any to wait for.

        A row of the codec has those of some pieces: their lines can end before others' samples are there.
        """
        wanted = self.is_making or bool(self._pieces)
        if not self.is_making:
            self.start()
        self._pass_on(wait=True)
        return wanted

    def _pass_on(self, wait: bool) -> None:
        """Pass on samples as far as they are there. ``wait``: for the next ones; otherwise for PASS_ON_S."""
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
    """Pieces whose samples the device makes; ``left`` are those whose samples have not been passed on."""

    def __init__(self, pieces: Sequence[_Wanted], in_flight: InFlight):
        self.left = dict(enumerate(pieces))
        self._in_flight, self._made = in_flight, deque[tuple[int, np.ndarray]]()

    def take(self, wait: bool) -> None:
        """Take over what the device has made; ``wait`` for the next of it."""
        self._made.extend(self._in_flight.take(wait).items())

    def pass_on(self) -> bool:
        """Pass on the samples of a piece; return whether there were any."""
        if not self._made:
            return False
        index, wave = self._made.popleft()
        line, piece = self.left.pop(index)
        line.take_samples(piece, wave)
        return True


def _frames(line: Wants, piece: Piece) -> int:
    return len(piece.making.codes) + (0 if line.reference is None else len(line.reference))

"""Waveforms that a device makes while the host goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import torch

from ..codec.packing import PackedChunk

MOST_ROWS = 8  # that the device has at a time, a tenth of a second's work: 16 MB of pinned memory for each

Row: TypeAlias = "Sequence[PackedChunk]"


class InFlight(Protocol):
    """Waveforms of lines, some of which may still be computed."""

    def look(self) -> bool:
        """Take over a part of what the device has made; return whether ``result`` waits for nothing now."""

    def result(self) -> list[np.ndarray]:
        """Return float32 ``[T * 1920]`` for each line; ``NotFinite`` for samples that are not finite."""


@dataclass(frozen=True)
class Made:
    """Waveforms that are there."""

    waves: list[np.ndarray]

    def look(self) -> bool:
        return True

    def result(self) -> list[np.ndarray]:
        return self.waves


class RowsInFlight:
    """Lines whose rows are launched on a device, MOST_ROWS at a time: the next ones when the first have been taken.

    Args:
        rows: of the lines.
        start: launches a row.
        unpack: copies a row's samples to the lines' waveforms.
        finish: returns the waveforms when all samples are there.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        start: Callable[[Row], SamplesInFlight],
        unpack: Callable[[Row, np.ndarray], None],
        finish: Callable[[], list[np.ndarray]],
    ):
        self._start, self._unpack, self._finish = start, unpack, finish
        self._waiting = deque(rows)
        self._launched: deque[tuple[Row, SamplesInFlight]] = deque()
        self._launch()

    def look(self) -> bool:
        """See ``InFlight``: one row at a time, which takes about as long as a frame of 64 lines."""
        if self._launched and self._launched[0][1].is_ready:
            self._take()
        return not self._launched

    def result(self) -> list[np.ndarray]:
        """See ``InFlight``."""
        while self._launched:
            self._take()
        return self._finish()

    def _launch(self) -> None:
        while self._waiting and len(self._launched) < MOST_ROWS:
            row = self._waiting.popleft()
            self._launched.append((row, self._start(row)))

    def _take(self) -> None:
        row, samples = self._launched.popleft()
        made = samples.wait()
        self._launch()  # before the copy: the device has one row less
        self._unpack(row, made)


class SamplesInFlight:
    """Samples being copied from the device: float32, after the row that computes them."""

    def __init__(self, samples: torch.Tensor):
        # torch uses pinned memory for a non-blocking copy.
        self._host = samples.to("cpu", non_blocking=True, copy=True)
        self._event = torch.cuda.Event() if samples.is_cuda else None
        if self._event is not None:
            self._event.record()

    @property
    def is_ready(self) -> bool:
        """Whether ``wait`` returns at once."""
        return self._event is None or bool(self._event.query())

    def wait(self) -> np.ndarray:
        """Return them once the device has made them."""
        if self._event is not None:
            self._event.synchronize()
        return self._host.numpy()

"""Waveforms that a device makes while the host goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from ..codec.packing import PackedChunk

# Whose samples are on their way to the host, in 16 MB of pinned memory each. Beyond them who begins waits, and makes no
# frames meanwhile: 64 lines of 20 s have 15.
MOST_ROWS = 16


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
    """Lines whose rows were launched on a device.

    Args:
        unpack: copies a row's samples to the lines' waveforms.
        finish: returns the waveforms when all samples are there.
    """

    def __init__(
        self,
        unpack: Callable[[Sequence[PackedChunk], np.ndarray], None],
        finish: Callable[[], list[np.ndarray]],
    ):
        self._unpack, self._finish = unpack, finish
        self._rows: deque[tuple[Sequence[PackedChunk], SamplesInFlight]] = deque()

    def add(self, row: Sequence[PackedChunk], samples: SamplesInFlight) -> None:
        """Note a row that was launched; wait for the first one if there are many."""
        self._rows.append((row, samples))
        if len(self._rows) > MOST_ROWS:
            self._take()

    def look(self) -> bool:
        """See ``InFlight``: one row at a time, which takes about as long as a frame of 64 lines."""
        if self._rows and self._rows[0][1].is_ready:
            self._take()
        return not self._rows

    def result(self) -> list[np.ndarray]:
        """See ``InFlight``."""
        while self._rows:
            self._take()
        return self._finish()

    def _take(self) -> None:
        row, samples = self._rows.popleft()
        self._unpack(row, samples.wait())


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

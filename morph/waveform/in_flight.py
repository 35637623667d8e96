"""Waveforms that a device computes while the host continues."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

import numpy as np
import torch

from ..codec.packing import PackedChunk

MOST_ROWS = 8  # in flight, a tenth of a second's work: 16 MB of pinned memory each

Row: TypeAlias = "Sequence[PackedChunk]"


class InFlight:
    """Waveforms of lines by index; in subclasses a device may still compute them. Each can be taken once."""

    def __init__(self, waves: Sequence[np.ndarray]):
        self._waves = dict(enumerate(waves))

    @property
    def is_done(self) -> bool:
        """Whether all have been taken."""
        return not self._waves

    def take(self, wait: bool = False) -> dict[int, np.ndarray]:
        """Collect a part of the device's samples; return the waveforms that are complete by now.

        ``wait``: for the next part. float32 ``[T * 1920]`` each; ``NotFinite`` for samples that are not finite.
        """
        waves, self._waves = self._waves, {}
        return waves


def take_all(waveforms: InFlight) -> list[np.ndarray]:
    """Return all waveforms, in the order of the lines; errors as ``InFlight.take``."""
    waves = dict[int, np.ndarray]()
    while not waveforms.is_done:
        waves |= waveforms.take(wait=True)
    return [waves[line] for line in sorted(waves)]


class RowsInFlight(InFlight):
    """Waveforms of rows that are launched on a device, with at most MOST_ROWS in flight.

    A thread, which ends with this object, copies the samples, without the GIL: into fresh memory a row takes longer
    than a frame of 64 lines.

    Args:
        lines: how many; one without a chunk in a row is complete from the start.
        start: launches a row.
        unpack: copies a row's samples to the lines' waveforms.
        finish: returns a line's complete waveform.
    """

    def __init__(
        self,
        lines: int,
        rows: Sequence[Row],
        start: Callable[[Row], SamplesInFlight],
        unpack: Callable[[Row, np.ndarray], None],
        finish: Callable[[int], np.ndarray],
    ):
        self._start, self._unpack, self._finish = start, unpack, finish
        self._thread = ThreadPoolExecutor(1, "codec samples")
        self._chunks = Counter(placed.chunk.line for row in rows for placed in row)  # those that are missing
        self._complete = [line for line in range(lines) if not self._chunks[line]]
        self._waiting = deque(rows)
        self._launched: deque[tuple[Row, SamplesInFlight]] = deque()
        self._copying: deque[tuple[Row, Future[None]]] = deque()
        self._launch()

    @property
    def is_done(self) -> bool:
        return not (self._launched or self._copying or self._complete)

    def take(self, wait: bool = False) -> dict[int, np.ndarray]:
        """See ``InFlight``; the parts are rows."""
        wait = wait and not self._complete
        if self._launched and (self._launched[0][1].is_ready or (wait and not self._copying)):
            self._copy()
        if self._copying and (wait or self._copying[0][1].done()):
            self._end_copy()
        complete, self._complete = self._complete, []
        return {line: self._finish(line) for line in complete}

    def _launch(self) -> None:
        while self._waiting and len(self._launched) < MOST_ROWS:
            row = self._waiting.popleft()
            self._launched.append((row, self._start(row)))

    def _copy(self) -> None:
        row, samples = self._launched.popleft()
        self._copying.append((row, self._thread.submit(self._unpack, row, samples.wait())))
        self._launch()

    def _end_copy(self) -> None:
        row, copy = self._copying.popleft()
        copy.result()
        for placed in row:
            self._chunks[placed.chunk.line] -= 1
            if not self._chunks[placed.chunk.line]:
                self._complete.append(placed.chunk.line)


class SamplesInFlight:
    """A tensor that is copied from the device once its work so far is done."""

    def __init__(self, samples: torch.Tensor):
        # torch uses pinned memory for a non-blocking copy.
        self._host = samples.to("cpu", non_blocking=True, copy=True).numpy()
        self._event = torch.cuda.Event() if samples.is_cuda else None
        if self._event is not None:
            self._event.record()

    @property
    def is_ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def wait(self) -> np.ndarray:
        if self._event is not None:
            self._event.synchronize()
        return self._host

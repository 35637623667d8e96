"""The host's table of rows and reports of frames, which it reads while later frames are already in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count

import numpy as np
import torch

from ..decode.rows import REPORT_WIDTH, Frame

LAG = 2  # frames that the device is ahead of the host: wasted when the last line ends before its cap
FREE = -1  # the line of a free row
REFILL_SHARE = 8  # an eighth of the rows is refilled at a time: one prefill serves several lines
# Frames for which fewer free rows wait: in that time an eighth of 64 rows ends (lines of 10 s).
REFILL_PATIENCE = 16
# With more lines, new ones start with nearly every frame: the device would wait for the host at each first frame.
FIRST_AT_ONCE = 16


class RowTable:
    """The lines in the rows, now and at the launch of each frame in flight.

    Its columns are arrays by row, as a Python loop over lines would take longer than everything else.
    """

    def __init__(self, rows: int):
        self.running = 0
        self._lines = np.full(rows, FREE)
        self._numbers = count()  # of lines, so that a row's next line does not get frames of the one before
        self._reached = np.zeros(rows, dtype=np.int64)
        self._in_flight: deque[np.ndarray] = deque()
        self.report = np.zeros((rows, REPORT_WIDTH))  # of the frame that was received last
        self._waited = 0  # frames that free rows have waited for others

    def room(self, waiting: int) -> int:
        """Return how many queued lines get rows now; call it once per frame. A few free rows wait for others."""
        free = len(self._lines) - self.running
        if free < min(waiting, max(1, len(self._lines) // REFILL_SHARE)) and self._waited < REFILL_PATIENCE:
            self._waited += free > 0
            return 0
        self._waited = 0
        return min(waiting, free)

    def take(self, lengths: Sequence[int]) -> list[int]:
        """Return free rows for lines with prompts of these lengths."""
        free = np.flatnonzero(self._lines == FREE)[: len(lengths)]
        self._lines[free], self._reached[free] = [next(self._numbers) for _ in lengths], lengths
        self.running += len(lengths)
        rows: list[int] = free.tolist()
        return rows

    def reached(self, row: int) -> int:
        """Return how many cache positions a row's line uses, with its frames in flight."""
        return int(self._reached[row])

    def send(self, stopped: Sequence[int] = ()) -> int:
        """Note a frame in flight, of the lines in the rows now except the stopped rows; return its cache positions."""
        sent, rows = self._lines.copy(), list(stopped)
        sent[rows] = FREE
        self._reached[sent != FREE] += 1
        self._in_flight.append(sent)
        longest = int(self._reached.max())
        # A stopped row overwrites the position of its next frame, so that one counts too.
        return max(longest, int(self._reached[rows].max()) + 1) if rows else longest

    def receive(self, report: np.ndarray) -> Frame:
        """Return the oldest frame in flight, by its report ``[B, REPORT_WIDTH]``."""
        sent, self.report = self._in_flight.popleft(), report
        rows = ((sent == self._lines) & (sent != FREE)).nonzero()[0]  # of lines not released since
        return Frame(rows, report[rows])

    def release(self, row: int) -> None:
        self._lines[row], self._reached[row] = FREE, 0
        self.running -= 1


class Readback:
    """A ring of ``LAG + 1`` host copies of one device tensor ``[B, N]``; on CUDA pinned, with one event each.

    Copies and writes must be on one stream: a cancelled decoding's copies then finish before the next one's.
    """

    def __init__(self, source: torch.Tensor):
        on_cuda = source.device.type == "cuda"
        self.source = source
        shape = (LAG + 1, *source.shape)
        self._copies = torch.empty(shape, dtype=source.dtype, pin_memory=on_cuda)
        self._events = [torch.cuda.Event() for _ in range(LAG + 1)] if on_cuda else []
        self.reset()

    def reset(self) -> None:
        self._pushed = self.waiting = 0

    def push(self) -> None:
        """Copy the source once the device has done all work so far; at most LAG reports may wait."""
        slot = self._pushed % (LAG + 1)
        self._copies[slot].copy_(self.source, non_blocking=True)
        if self._events:
            self._events[slot].record()
        self._pushed, self.waiting = self._pushed + 1, self.waiting + 1

    def pop(self) -> torch.Tensor:
        """Wait for the oldest report and return a CPU copy of it; there must be one."""
        slot = (self._pushed - self.waiting) % (LAG + 1)
        if self._events:
            self._events[slot].synchronize()
        self.waiting -= 1
        return self._copies[slot].clone()

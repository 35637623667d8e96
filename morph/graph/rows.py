"""The host's table of rows, for frames that it reads late."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import count

import numpy as np

from ..decode.rows import Frame

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
        sent = self._in_flight.popleft()
        rows = ((sent == self._lines) & (sent != FREE)).nonzero()[0]  # of lines not released since
        return Frame(rows, report[rows])

    def release(self, row: int) -> None:
        self._lines[row], self._reached[row] = FREE, 0
        self.running -= 1

"""The host's map of lines to rows, for frames that it reads late."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from ..decode.rows import Frame

NOBODY = -1  # the number of the line in a free row
REFILL_SHARE = 8  # an eighth of the rows is refilled at a time: one prefill serves several lines
REFILL_PATIENCE = (
    16  # frames for which fewer free rows wait: an eighth of 64 rows ends in that (lines of 10 s)
)
# With more lines, new ones come with nearly every frame: the device would wait for the host to read each first frame.
FIRST_AT_ONCE = 16


class RowTable:
    """Which line has which row, with frames in flight: a frame belongs to the lines that were in the rows then.

    It is kept in arrays by row: looping over lines in Python takes longer than all the rest.
    """

    def __init__(self, rows: int):
        self._numbers = np.full(rows, NOBODY)
        self._rows: dict[int, int] = {}  # by line
        self._reached = np.zeros(rows, dtype=np.int64)
        self._stopped: Sequence[int] = ()  # rows without the last frame
        self._in_flight: deque[np.ndarray] = deque()
        self._waited = 0  # frames that free rows have waited for others

    @property
    def running(self) -> int:
        return len(self._rows)

    @property
    def positions(self) -> int:
        """The cache positions of the longest running line."""
        # A stopped row overwrites the position of its next frame, so that one counts too.
        held = (self._reached[row] + 1 for row in self._stopped if self._numbers[row] != NOBODY)
        return int(max(self._reached.max(), max(held, default=0)))

    def room(self, waiting: int) -> int:
        """Return how many waiting lines take rows now, once per frame: none for some frames while few rows are free."""
        free = len(self._numbers) - self.running
        if free < min(waiting, max(1, len(self._numbers) // REFILL_SHARE)) and self._waited < REFILL_PATIENCE:
            self._waited += free > 0
            return 0
        self._waited = 0
        return min(waiting, free)

    def take(self, lines: Sequence[int], lengths: Sequence[int]) -> list[int]:
        free = np.flatnonzero(self._numbers == NOBODY)[: len(lines)]
        self._numbers[free], self._reached[free] = lines, lengths
        rows: list[int] = free.tolist()
        self._rows.update(zip(lines, rows, strict=True))
        return rows

    def row(self, line: int) -> int:
        return self._rows[line]

    def reached(self, line: int) -> int:
        """Return how many cache positions a line uses, with its frames in flight."""
        return int(self._reached[self._rows[line]])

    def send(self, stopped: Sequence[int] = ()) -> None:
        """Note a frame in flight, of the lines in the rows now except the stopped rows."""
        self._stopped = stopped
        sent = self._numbers.copy()
        if stopped:
            sent[list(stopped)] = NOBODY
        self._reached[sent != NOBODY] += 1
        self._in_flight.append(sent)

    def receive(self, report: np.ndarray) -> Frame:
        """Return the oldest frame in flight, by its report ``[B, REPORT_WIDTH]``."""
        sent = self._in_flight.popleft()
        rows = ((sent == self._numbers) & (sent != NOBODY)).nonzero()[0]  # of lines not released since
        return Frame(sent[rows], report[rows])

    def release(self, line: int) -> int:
        row = self._rows.pop(line)
        self._numbers[row], self._reached[row] = NOBODY, 0
        return row

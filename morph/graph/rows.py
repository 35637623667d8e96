"""The host's view of a batch of rows whose frames it reads late: which line has which row, and which began last."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch

from ..decode.request import LineRequest
from ..decode.rows import Frame
from ..frame.noise import GROUPS

NOBODY = -1  # the number of the line in a free row
REFILL_SHARE = 8  # an eighth of the rows is refilled at a time: one prefill serves several lines
# Up to this many lines, a new one's first frame is read at once, and where it is heard its samples are waited for. With
# more, lines come with nearly every frame: the device would wait for the host each time.
FIRST_AT_ONCE = 16


class RowTable:
    """Which line has which row, with frames in flight: a frame belongs to the lines that were in the rows then.

    For each row it has the number of its line, and the cache positions that this takes up: a look at every line in
    Python takes longer than all the rest.

    Args:
        rows: of the batch.
    """

    def __init__(self, rows: int):
        self.running = 0  # rows that have a line
        self._numbers = np.full(rows, NOBODY)
        self._reached = np.zeros(rows, dtype=np.int64)
        self._stopped: Sequence[int] = ()  # rows without the last frame
        self._in_flight: deque[np.ndarray] = deque()

    @property
    def positions(self) -> int:
        """The cache positions that the longest running line takes up.

        A stopped row overwrites the position of its next frame, so that one counts too.
        """
        held = (self._reached[row] + 1 for row in self._stopped if self._numbers[row] != NOBODY)
        return int(max(self._reached.max(), max(held, default=0)))

    def room(self, waiting: int) -> int:
        """Return how many of the waiting lines take rows now; none as long as few rows are free."""
        free = len(self._numbers) - self.running
        return 0 if free < min(waiting, max(1, len(self._numbers) // REFILL_SHARE)) else min(waiting, free)

    def take(self, lines: Sequence[int], lengths: Sequence[int]) -> list[int]:
        """Give free rows to lines with prompts of these lengths; return the rows."""
        rows = np.flatnonzero(self._numbers == NOBODY)[: len(lines)]
        self._numbers[rows], self._reached[rows] = lines, lengths
        self.running += len(lines)
        return rows.tolist()

    def row(self, line: int) -> int:
        """Return a line's row."""
        return int(np.flatnonzero(self._numbers == line)[0])

    def send(self, stopped: Sequence[int] = ()) -> None:
        """Note that a frame is in flight: of the lines in the rows now, but the stopped rows."""
        self._stopped = stopped
        sent = self._numbers.copy()
        sent[list(stopped)] = NOBODY
        self._reached[sent != NOBODY] += 1
        self._in_flight.append(sent)

    def receive(self, report: np.ndarray) -> Frame:
        """Return the oldest frame in flight, by its report ``[B, 17]``."""
        sent = self._in_flight.popleft()
        rows = ((sent == self._numbers) & (sent != NOBODY)).nonzero()[0]  # of lines not released since
        return Frame(sent[rows], report[rows])

    def release(self, line: int) -> int:
        """Free a line's row, and return it."""
        row = self.row(line)
        self._numbers[row], self._reached[row] = NOBODY, 0
        self.running -= 1
        return row


class FirstFrames:
    """The lines that have no frame yet, and those whose first frame is in flight and has a listener."""

    def __init__(self) -> None:
        self._new: dict[int, LineRequest] = {}  # without a frame in flight
        self._began: dict[int, LineRequest] = {}  # whose first frame is the last one that was sent
        self._unheard: set[int] = set()

    @property
    def in_flight(self) -> bool:
        """Whether the first frame of a line that somebody listens to is in flight."""
        return bool(self._unheard)

    def add(self, lines: Mapping[int, LineRequest]) -> None:
        """Note new lines."""
        self._new.update(lines)

    def send(self, stopped: Collection[int]) -> None:
        """Note that a frame is in flight, of all lines but the stopped ones."""
        self._began = {number: line for number, line in self._new.items() if number not in stopped}
        self._new = {number: line for number, line in self._new.items() if number in stopped}
        self._unheard.update(number for number, line in self._began.items() if line.on_codes is not None)

    def launched(self, report: torch.Tensor, table: RowTable) -> None:
        """The device has the frame that was sent: let the lines whose first it is get ready for it.

        ``report`` is the device's own, ``[B, 17]``.
        """
        for number, line in self._began.items():
            if line.on_launch is not None:
                line.on_launch(report[table.row(number), :GROUPS] if len(self._began) == 1 else None)

    def read(self, frame: Frame) -> None:
        """Note a frame that the host has."""
        if self._unheard:
            self._unheard.difference_update(frame.lines.tolist())

    def forget(self, line: int) -> None:
        """Note that a line has ended."""
        self._new.pop(line, None)
        self._unheard.discard(line)

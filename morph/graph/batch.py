"""The host's view of the lines being decoded: each line's row, codes and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from ..decode.decoded import Decoded
from ..decode.request import LineRequest
from ..frame.noise import GROUPS
from ..model.finite import not_finite

REFILL_SHARE = 8  # an eighth of the rows is refilled at a time: one prefill serves several lines


class LineBatch:
    """Follows lines through a batch with fewer rows: a row whose line has ended takes the next waiting line.

    Args:
        lines: in the order in which they get their rows.
        eos: the code of group 0 that ends a line.
        rows: of the batch.
        dtype: that the model computes in, for the error when its numbers are not finite.
    """

    def __init__(self, lines: Sequence[LineRequest], eos: int, rows: int, dtype: torch.dtype):
        self.lines = lines
        self.eos = eos
        self.dtype = dtype
        self.rows: list[int | None] = [None] * rows
        self._reached = [len(line.prompt.embeds) for line in lines]
        self._reports: list[torch.Tensor] = []
        self._starts = [(0, 0)] * len(lines)  # a line's row, and the index of its first report
        self._frames = [0] * len(lines)
        self._ends: list[str | None] = [None] * len(lines)
        self._waiting = deque(range(len(lines)))
        self._in_flight: deque[list[int | None]] = deque()

    @property
    def running(self) -> bool:
        """Whether a line has not ended."""
        return bool(self._waiting) or any(line is not None for line in self.rows)

    @property
    def positions(self) -> int:
        """The cache positions that the longest running line takes up."""
        return max((self._reached[line] for line in self.rows if line is not None), default=0)

    def admit(self) -> list[tuple[int, int]]:
        """Assign free rows to waiting lines, if enough rows are free; return pairs of a row and its new line."""
        free = [row for row, line in enumerate(self.rows) if line is None]
        if len(free) < min(len(self._waiting), max(1, len(self.rows) // REFILL_SHARE)):
            return []
        admitted = [(row, self._waiting.popleft()) for row in free[: len(self._waiting)]]
        for row, line in admitted:
            self.rows[row] = line
        return admitted

    def send(self) -> None:
        """Note that a frame is in flight: its report will be about the lines that are in the rows now."""
        self._in_flight.append(self.rows.copy())
        for line in self.rows:
            if line is not None:
                self._reached[line] += 1

    def receive(self, report: torch.Tensor) -> int:
        """Take the oldest report in flight, ``[B, 17]``; return how many lines made this frame.

        Raises:
            ValueError: if a line's numbers are not finite.
        """
        made, first, broken = 0, report[:, 0].tolist(), report[:, GROUPS].tolist()
        for row, line in enumerate(self._in_flight.popleft()):
            if line is None or self._ends[line] is not None:
                continue
            if broken[row]:
                raise not_finite(self.dtype)
            if first[row] == self.eos:
                self._ends[line] = "eos"
            else:
                self._keep(line, row)
                made += 1
                request = self.lines[line]
                if request.on_codes is not None:  # a copy for each line would cost a large batch its time
                    request.on_codes(report[row, :GROUPS].clone())
                self._ends[line] = request.guard.add(first[row])
            if (end := self._ends[line]) is not None:
                self.rows[row] = None
                self.lines[line].end(end)
        self._reports.append(report[:, :GROUPS])
        return made

    def _keep(self, line: int, row: int) -> None:
        """Count the current report for a line. A line's frames are in one row, in consecutive reports."""
        if self._frames[line] == 0:
            self._starts[line] = row, len(self._reports)
        self._frames[line] += 1

    def collect(self) -> list[Decoded]:
        """Return every line's codes and how it ended."""
        codes = torch.stack(self._reports) if self._reports else torch.zeros(0, 1, GROUPS, dtype=torch.int64)
        return [
            Decoded(codes[start : start + frames, row].clone(), str(end))
            for (row, start), frames, end in zip(self._starts, self._frames, self._ends, strict=True)
        ]

"""What the host knows of a decoding's lines: which row each rides in, its codes, and how it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from ..decode.decoded import Decoded
from ..decode.guard import Guard
from ..decode.sampling import not_finite
from ..frame.noise import GROUPS

REFILL_SHARE = 8  # rows are refilled an eighth at a time: one prefill serves several lines


class LineBatch:
    """Follows lines through a batch of fewer rows: a row whose line has ended takes the next that waits.

    Args:
        lengths: each line's prompt, in positions, in the order in which they are to be taken.
        guards: one a line.
        eos: the code of group 0 that ends a line.
        rows: of the batch.
        dtype: that the model computes in, for the sentence when its numbers are not finite.
    """

    def __init__(
        self, lengths: Sequence[int], guards: Sequence[Guard], eos: int, rows: int, dtype: torch.dtype
    ):
        self.guards = guards
        self.eos = eos
        self.dtype = dtype
        self.rows: list[int | None] = [None] * rows
        self._reached = list(lengths)
        self._reports: list[torch.Tensor] = []
        self._starts = [(0, 0)] * len(guards)  # a line's row, and the number of its first report
        self._made = [0] * len(guards)
        self._ends: list[str | None] = [None] * len(guards)
        self._waiting = deque(range(len(guards)))
        self._sent: deque[list[int | None]] = deque()

    @property
    def going(self) -> bool:
        """Whether a line has not ended."""
        return bool(self._waiting) or any(line is not None for line in self.rows)

    @property
    def positions(self) -> int:
        """Positions of the cache that the longest line in a row takes up."""
        return max((self._reached[line] for line in self.rows if line is not None), default=0)

    def admit(self) -> list[tuple[int, int]]:
        """Give waiting lines the free rows, when enough are free: pairs of a row and its new line."""
        free = [row for row, line in enumerate(self.rows) if line is None]
        if len(free) < min(len(self._waiting), max(1, len(self.rows) // REFILL_SHARE)):
            return []
        admitted = [(row, self._waiting.popleft()) for row in free[: len(self._waiting)]]
        for row, line in admitted:
            self.rows[row] = line
        return admitted

    def send(self) -> None:
        """A frame is on its way: its report will be of the lines that are in the rows now."""
        self._sent.append(self.rows.copy())
        for line in self.rows:
            if line is not None:
                self._reached[line] += 1

    def receive(self, report: torch.Tensor) -> int:
        """Take the oldest report on its way, ``[B, 17]``; give the number of lines that have made this frame.

        Raises:
            ValueError: when a line's numbers are not finite.
        """
        made, first, broken = 0, report[:, 0].tolist(), report[:, GROUPS].tolist()
        for row, line in enumerate(self._sent.popleft()):
            if line is None or self._ends[line] is not None:
                continue
            if broken[row]:
                raise not_finite(self.dtype)
            if first[row] == self.eos:
                self._ends[line] = "eos"
            else:
                self._keep(line, row)
                made += 1
                self._ends[line] = self.guards[line].add(first[row])
            if self._ends[line] is not None:
                self.rows[row] = None
        self._reports.append(report[:, :GROUPS])
        return made

    def _keep(self, line: int, row: int) -> None:
        """The report at hand has a frame of a line. Its frames are in one row, report after report."""
        if self._made[line] == 0:
            self._starts[line] = row, len(self._reports)
        self._made[line] += 1

    def collect(self) -> list[Decoded]:
        """Every line's codes and its end."""
        codes = torch.stack(self._reports) if self._reports else torch.zeros(0, 1, GROUPS, dtype=torch.int64)
        return [
            Decoded(codes[start : start + made, row].clone(), str(end))
            for (row, start), made, end in zip(self._starts, self._made, self._ends, strict=True)
        ]

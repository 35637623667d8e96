"""What the host knows of a decoding's lines: which row each rides in, its codes, and how it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch

from .eager import Decoded
from .guard import Guard
from .noise import GROUPS

REFILL_SHARE = 8  # rows are refilled an eighth at a time: one prefill serves several lines


class Lines:
    """Follows lines through a batch of fewer rows: a row whose line has ended takes the next that waits.

    Args:
        lengths: each line's prompt, in positions, in the order in which they are to be taken.
        guards: one a line.
        eos: the code of group 0 that ends a line.
        rows: of the batch.
    """

    def __init__(self, lengths: Sequence[int], guards: Sequence[Guard], eos: int, rows: int):
        self.guards = guards
        self.eos = eos
        self.rows: list[int | None] = [None] * rows
        self._reached = list(lengths)
        self._codes: list[list[list[int]]] = [[] for _ in guards]
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

    def receive(self, report: list[list[int]]) -> int:
        """Take the oldest report on its way, ``[B][17]``; give the number of lines that have made this frame.

        Raises:
            ValueError: when a line's numbers have overflowed.
        """
        made = 0
        for row, (line, (*codes, overflown)) in enumerate(zip(self._sent.popleft(), report, strict=True)):
            if line is None or self._ends[line] is not None:
                continue
            if overflown:
                raise ValueError(
                    "the model's numbers overflow in fp16: load it with precision auto, fp32 or bf16"
                )
            if codes[0] == self.eos:
                self._ends[line] = "eos"
            else:
                made += 1
                self._codes[line].append(codes)
                self._ends[line] = self.guards[line].add(codes[0])
            if self._ends[line] is not None:
                self.rows[row] = None
        return made

    def collect(self) -> list[Decoded]:
        """Every line's codes and its end."""
        return [
            Decoded(torch.tensor(codes, dtype=torch.int64).view(-1, GROUPS), str(end))
            for codes, end in zip(self._codes, self._ends, strict=True)
        ]

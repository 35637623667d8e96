"""What the loop over frames asks of an engine: rows, in which lines are decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .request import LatePart, LineRequest


@dataclass(frozen=True)
class Frame:
    """A frame that the host has, of the N lines that had made it and have not been released since.

    ``lines`` int64 ``[N]`` are their numbers. ``report`` int64 ``[N, REPORT_WIDTH]`` (``decoded.py``) has 16 codes, a
    flag that is not 0 if any of the line's numbers is not finite (then the codes mean nothing), and what the alignment
    head says.
    """

    lines: np.ndarray
    report: np.ndarray


class Rows(Protocol):
    """The rows of one decoding. Lines are known by their numbers; a line has a row until it is released."""

    def room(self, waiting: int) -> int:
        """Return how many of the ``waiting`` lines are to be admitted now."""

    def admit(self, lines: Mapping[int, LineRequest]) -> None:
        """Put lines into free rows, by their numbers: their prompts are run."""

    def add_text(self, line: int, start: int, part: LatePart) -> None:
        """Add text that has come after the first ``start`` positions of a line's text."""

    def step(self, stopped: Sequence[int]) -> bool:
        """Make a frame of every line but the stopped ones.

        Return whether it is made beside the host; if not, it is made when it is read.
        """

    def read(self) -> Frame | None:
        """Return the oldest frame that was not read, or None where the next step comes first."""

    def release(self, line: int) -> None:
        """Free the row of a line that has ended; nothing of the line is left for the next one."""

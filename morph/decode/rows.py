"""The rows of an engine, in which lines are decoded, as the loop over frames uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .request import LatePart, LineRequest


@dataclass(frozen=True)
class Frame:
    """A frame on the host, of N lines that have not been released since.

    ``report`` (``decoded.py``) has 16 codes, a flag that is not 0 if any of the line's numbers is not finite (then the
    codes mean nothing), and what the alignment head says.
    """

    lines: np.ndarray  # int64 ``[N]``, their numbers
    report: np.ndarray  # int64 ``[N, REPORT_WIDTH]``


class Rows(Protocol):
    """The rows of one decoding. Lines are known by number; a line has a row until it is released."""

    def room(self, waiting: int) -> int:
        """Return how many of the ``waiting`` lines can be admitted now."""

    def admit(self, lines: Mapping[int, LineRequest]) -> None:
        """Put lines into free rows, by number, and run their prompts."""

    def add_text(self, line: int, start: int, part: LatePart) -> None:
        """Add text that has come after the first ``start`` positions of a line's text."""

    def step(self, stopped: Sequence[int]) -> bool:
        """Launch a frame of all but the stopped lines; return whether the device makes it now, or ``read`` does."""

    def read(self) -> Frame | None:
        """Return the oldest frame that was not read, or None if the next step comes first."""

    def release(self, line: int) -> None:
        """Free the row of a line that has ended, and all of the line's state."""

"""The rows of an engine, in which lines are decoded, as loops over frames use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from ..options import MOST_LINES
from ..words.trace import REPORTED, Trace
from .request import Group, LatePart, LineRequest

EOS, WORDS = "eos", "words"
BROKEN = "broken"  # how a line ends whose numbers are not finite
# The columns of a frame's report: 16 codes, then whether a number of the line is not finite, then what the alignment
# head says (``words/trace.py``).
FLAG = 16
ALIGNMENT = FLAG + 1
REPORT_WIDTH = ALIGNMENT + REPORTED
SPECIAL_CODES = 1024  # the top of group 0's vocabulary: never sampled, except EOS


@dataclass(frozen=True)
class Ahead:
    """The work of an engine before its first line, so that no line waits for it."""

    lines: int = 0  # that may begin together, for capture; 0: as needed
    positions: int = 0  # of each row's cache at first, for late lines; 0: as needed


NOTHING_AHEAD = Ahead()


@dataclass(frozen=True)
class RowPlan:
    """The needs of a decoding.

    ``rows`` lines are decoded together; an engine may have up to ``limit`` rows. ``first`` are the lines
    at its beginning, and ``late`` tells whether others come while they are decoded.
    """

    rows: int
    limit: int
    first: Sequence[LineRequest] = ()
    late: bool = False
    ahead: Ahead = NOTHING_AHEAD

    @classmethod
    def of_lines(cls, lines: Sequence[LineRequest], batch_size: int) -> RowPlan:
        """Plan for these lines; a ``batch_size`` of AUTO_ROWS decodes all of them together."""
        rows = max(1, min(len(lines), batch_size or MOST_LINES))
        return cls(rows, batch_size or rows, lines)


@dataclass(frozen=True)
class Frame:
    """A frame on the host, of N rows whose lines have not been released since; flagged codes mean nothing."""

    rows: np.ndarray  # int64 ``[N]``
    report: np.ndarray  # int64 ``[N, REPORT_WIDTH]``


@dataclass(frozen=True)
class Decoded:
    """One line's codes ``[T, 16]`` (int64, on the CPU)."""

    codes: torch.Tensor
    ended: str  # EOS, "cap", "loop", WORDS, "cancelled" or BROKEN
    trace: Trace | None = None  # which text token each frame is on; None without an alignment head

    @classmethod
    def of(cls, report: np.ndarray, ended: str) -> Decoded:
        """Read the reports of a line's frames, int32 ``[T, REPORT_WIDTH]``."""
        codes = torch.from_numpy(report[:, :FLAG].astype(np.int64))
        return cls(codes, ended, Trace.from_numbers(report[:, ALIGNMENT:]))


class Rows(Protocol):
    """The rows of one decoding. A line has a row until it is released."""

    count: int
    # Whether lines come while others are decoded, and should not wait for them. It may change.
    late: bool
    # Rows of streamed lines whose first frame the last step launched, with its codes on the device, int64 ``[16]``;
    # None if other lines begin with it, or if the engine makes it only in ``read``.
    began: Sequence[tuple[int, torch.Tensor | None]]

    def room(self, waiting: int) -> int:
        """Return how many of the ``waiting`` lines can be admitted now."""

    def admit(self, lines: Sequence[LineRequest]) -> list[int]:
        """Put lines into free rows and run their prompts; return the rows."""

    def add_text(self, row: int, start: int, part: LatePart) -> None:
        """Add text that has come after the first ``start`` positions of a line's text."""

    def step(self, stopped: Sequence[int], group: Group | None = None) -> bool:
        """Launch a frame of a group's lines; return whether the device makes it now, or ``read`` does.

        Lines of other groups (``LineRequest.group``) and ``stopped`` rows do not go on.
        """

    def read(self) -> Frame | None:
        """Return the oldest frame that was not read, or None if the next step comes first."""

    def release(self, row: int) -> None:
        """Free the row of a line that has ended, and all of the line's state."""

    def settle(self) -> None:
        """Have ``read`` return all frames in flight."""

    def suspend(self, row: int) -> Any:
        """Free the row of a line without frames in flight; return its state for ``resume``."""

    def resume(self, state: Any) -> int:
        """Put a suspended line into a free row, where it goes on; return the row."""

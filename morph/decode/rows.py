"""A line to decode, and the rows of an engine in which lines are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ..options import MOST_LINES, Sampling
from ..voice.prompt import Prompt
from ..words.alignment import REPORTED, Trace
from ..words.guard import WordGuard

EOS, WORDS = "eos", "words"
BROKEN = "broken"  # how a line ends whose numbers are not finite
# The columns of a frame's report: 16 codes, then whether a number of the line is not finite, then what the alignment
# head says (``words/alignment.py``).
FLAG = 16
ALIGNMENT = FLAG + 1
REPORT_WIDTH = ALIGNMENT + REPORTED
SPECIAL_CODES = 1024  # the top of group 0's vocabulary: never sampled, except EOS


@dataclass
class Guard:
    """The stop criteria of a line that misses its EOS; ``max_frames`` changes while its text comes.

    Upstream has none: such a line runs on to ``max_new_tokens`` (8192 frames, eleven minutes).
    """

    max_frames: int
    detect_loops: bool = True


class Group(NamedTuple):
    """The settings that all lines of one frame share; a line's talker does not know them."""

    seq_groups: int
    tail: str


class LateText(Protocol):
    """A line's text that comes while the line is decoded. Only the decoding thread calls it."""

    def ready(self, frame: int) -> bool:
        """Return whether all text that a frame (from 0) depends on has come; until then the line stalls."""

    def take(self) -> LatePart | None:
        """Return the text since the last call, or None."""


@dataclass(frozen=True)
class LatePart:
    """Text after a prompt's ``trailing``."""

    rows: torch.Tensor  # ``[N, H]``
    min_frames: int  # of the line, as known by now
    text_tokens: int = 0  # of the line by now, those of the prompt included


@dataclass(frozen=True)
class LineRequest:
    """A line to decode.

    Args:
        guard: its limits, which count its frames.
        seed: of the line's random stream. The two engines use different generators.
        text: the rest of the prompt's text; None: the prompt has all of it.
        sampling: None: as the options of the decoding say. Its limits are not used: see ``guard``.
        is_streamed: whether its first frame is urgent.
        words: ends the line with the first frame at which it finds a fault.
        group: None: that of the decoding's options.
    """

    prompt: Prompt
    guard: Guard
    seed: int = 0
    text: LateText | None = None
    sampling: Sampling | None = None
    is_streamed: bool = False
    words: WordGuard | None = None
    group: Group | None = None


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

"""The source of an engine's lines: a list, or lines that come while others are decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeAlias

from ..options import AUTO_ROWS, MOST_LINES
from .request import LineRequest

PROMPTS_PER_FRAME = 2  # half a millisecond each: less than a frame of many lines takes


@dataclass(frozen=True)
class Ahead:
    """What an engine does before the first line, so that no line waits for it."""

    lines: int = 0  # that may begin together, for capture; 0: as needed
    positions: int = 0  # of each row's cache at first, for late lines; 0: as needed


NOTHING_AHEAD = Ahead()


class LineSource(Protocol):
    """Lines to decode, in the order of admission. Only the decoding thread calls it; its errors end the decoding."""

    def follow(self) -> None:
        """Look for changes: called before each frame, and before ``wait``."""

    @property
    def ready(self) -> Sequence[LineRequest]:
        """The lines that can be decoded now, in order."""

    @property
    def late(self) -> bool:
        """Whether lines come while others are decoded, and should not wait for them. It may change."""

    @property
    def collected(self) -> bool:
        """Whether ``decode`` returns the codes; if not, only ``on_codes`` gets them, and no line is kept."""

    @property
    def ahead(self) -> Ahead:
        """What an engine prepares before the first line has a row."""

    @property
    def most(self) -> int | None:
        """The most lines that can be decoded together, None for any number."""

    @property
    def rows(self) -> int:
        """How many rows an engine may have for them; ``AUTO_ROWS``: as the options of the decoding say."""

    @property
    def done(self) -> bool:
        """Whether no line is ready and none will come."""

    def take(self) -> LineRequest:
        """Remove and return the first ready line."""

    def meanwhile(self) -> None:
        """Do idle-time work while the device makes a frame; called once for each frame that is not waited for yet."""

    def wait(self) -> None:
        """Wait for a line, text or a cancellation, as no line can make a frame; it may return without any."""


class GivenLines:
    """A ``LineSource`` of lines that are all given at first."""

    late = False
    collected = True
    ahead = NOTHING_AHEAD
    rows = AUTO_ROWS

    def __init__(self, lines: Sequence[LineRequest]):
        self.ready: deque[LineRequest] = deque(lines)
        self.most = len(self.ready)
        self._prompts = 0  # of the first ready lines, that are made

    def follow(self) -> None:
        """Do nothing: no lines are added."""

    @property
    def done(self) -> bool:
        return not self.ready

    def take(self) -> LineRequest:
        self._prompts = max(0, self._prompts - 1)
        return self.ready.popleft()

    def meanwhile(self) -> None:
        """Make prompts of queued lines."""
        for line in islice(self.ready, self._prompts, self._prompts + PROMPTS_PER_FRAME):
            line.prompt.make_inputs()
            line.prompt.make_text()
            self._prompts += 1

    def wait(self) -> None:
        raise RuntimeError("no line can make a frame, and no other will come")


def limit_of(batch_size: int, lines: Lines) -> int:
    """Return how many rows lines may have: their source's number, or else ``batch_size``."""
    return batch_size if isinstance(lines, Sequence) else lines.rows or batch_size


def rows_of(batch_size: int, lines: Lines) -> int:
    """Return the rows for lines: at most ``limit_of``; ``AUTO_ROWS`` takes all that are given."""
    given, limit = len(lines) if isinstance(lines, Sequence) else lines.most, limit_of(batch_size, lines)
    return max(1, min(given or limit or 1, limit or MOST_LINES))


Lines: TypeAlias = "Sequence[LineRequest] | LineSource"
"""What an engine decodes."""


def as_source(lines: Lines) -> LineSource:
    return GivenLines(lines) if isinstance(lines, Sequence) else lines

"""Where an engine takes its lines from: a list, or lines that come while others are decoded."""

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
    """What an engine does before the first line, so that no line waits for it.

    Args:
        lines: that may begin together; what they need is captured. 0: nothing is, before it is needed.
        positions: of each row's cache from the beginning, where lines come late; 0: as lines need them.
    """

    lines: int = 0
    positions: int = 0


NOTHING_AHEAD = Ahead()


class LineSource(Protocol):
    """Lines to decode, in the order in which they get rows. Only the thread that decodes calls it."""

    def follow(self) -> None:
        """Look what has changed: called before each frame, and before ``wait``. What it raises ends the decoding."""

    @property
    def ready(self) -> Sequence[LineRequest]:
        """The lines that can be decoded now, in their order."""

    @property
    def late(self) -> bool:
        """Whether lines come while others are decoded, and should not wait for them. It may change."""

    @property
    def collected(self) -> bool:
        """Whether the caller takes the codes from what ``decode`` returns.

        If not, they go to ``LineRequest.on_codes`` only, and nothing of a line is kept after its end.
        """

    @property
    def ahead(self) -> Ahead:
        """What an engine does before the first line has a row."""

    @property
    def most(self) -> int | None:
        """The most lines that can be decoded at a time, None for any number."""

    @property
    def rows(self) -> int:
        """How many rows an engine may have for them; ``AUTO_ROWS``: as the options of the decoding say."""

    @property
    def done(self) -> bool:
        """Whether no line is ready and none will come."""

    def take(self) -> LineRequest:
        """Remove the first of the ready lines, and return it."""

    def meanwhile(self) -> None:
        """Do what takes time and need not be done between two frames: the device makes one now.

        Called once for each frame that an engine has not waited for yet. What it raises ends the decoding.
        """

    def wait(self) -> None:
        """Wait for a line, for the text of one, or for a cancellation; it may also return without any.

        Called when no line can make a frame. What it raises ends the decoding and passes through.
        """


class GivenLines:
    """A ``LineSource`` of lines that are all there from the beginning."""

    late = False
    collected = True
    ahead = NOTHING_AHEAD
    rows = AUTO_ROWS

    def __init__(self, lines: Sequence[LineRequest]):
        self.ready: deque[LineRequest] = deque(lines)
        self.most = len(self.ready)
        self._prompts = 0  # of the first ready lines, that are made

    def follow(self) -> None:
        """See ``LineSource``: nothing changes."""

    @property
    def done(self) -> bool:
        return not self.ready

    def take(self) -> LineRequest:
        self._prompts = max(0, self._prompts - 1)
        return self.ready.popleft()

    def meanwhile(self) -> None:
        """See ``LineSource``: prompts of lines that wait are made."""
        for line in islice(self.ready, self._prompts, self._prompts + PROMPTS_PER_FRAME):
            line.prompt.make_inputs()
            line.prompt.make_text()
            self._prompts += 1

    def wait(self) -> None:
        raise RuntimeError("no line can make a frame, and no other will come")


def limit_of(batch_size: int, lines: Lines) -> int:
    """Return how many rows lines may have: what their source says, or else ``batch_size``."""
    return batch_size if isinstance(lines, Sequence) else lines.rows or batch_size


def rows_of(batch_size: int, lines: Lines) -> int:
    """Return the rows for lines: ``limit_of`` at most; ``AUTO_ROWS`` takes all that are given."""
    given, limit = len(lines) if isinstance(lines, Sequence) else lines.most, limit_of(batch_size, lines)
    return max(1, min(given or limit or 1, limit or MOST_LINES))


Lines: TypeAlias = "Sequence[LineRequest] | LineSource"
"""What an engine decodes."""


def as_source(lines: Lines) -> LineSource:
    """Return lines as a source."""
    return GivenLines(lines) if isinstance(lines, Sequence) else lines

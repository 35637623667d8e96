"""The progress of lines that are spoken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..text.duration import expected_frames

OnFrame = Callable[[int, int], None]
"""Called with (frames done, frames expected) while lines are made; what it raises ends them all."""


@dataclass
class Progress:
    """Counts frames and passes them to ``report``, with the number of frames expected in all."""

    report: OnFrame | None = None
    done: int = 0
    expected: int = 0

    def expect(self, tokens: Sequence[int]) -> None:
        """Add texts with these numbers of tokens to what is still to be spoken."""
        self.expected = max(self.expected, self.done + sum(map(expected_frames, tokens)))

    def add(self, frames: int) -> None:
        """Count finished frames; 0 only gives ``report`` a chance to cancel."""
        self.done += frames
        self.expected = max(self.expected, self.done + 1)
        if self.report is not None:
            self.report(self.done, self.expected)

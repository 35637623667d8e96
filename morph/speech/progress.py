"""The progress of lines in work."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized

from ..options import FRAME_RATE
from ..text.duration import expected_frames

LONG_S = 60.0  # of speech, above which length and time left are reported
MEASURED_FRAMES = 25  # needed to know the speed of a run

OnFrame = Callable[[int, int], None]
"""Called with (frames done, frames expected) while lines are made; what it raises ends them all."""


class Progress:
    """Counts frames and passes them to ``report``, with the number expected in all.

    ``pieces``: how many the text is cut into, roughly while it is cut; 0 if unknown.
    """

    def __init__(self, report: OnFrame | None = None):
        self.expected = self.pieces = 0
        self._report, self._done = report, 0
        self._takes: list[Sized] = []  # whose frames count too

    @property
    def done(self) -> int:
        """The frames so far; any thread may ask."""
        return self._done + sum(map(len, self._takes))

    @done.setter
    def done(self, frames: int) -> None:
        self._takes, self._done = [], frames

    def follow(self, frames: Sized) -> None:
        """Count the frames of a take while it is made."""
        self._takes.append(frames)

    def end_take(self, frames: Sized) -> None:
        self._done += len(frames)
        self._takes = [take for take in self._takes if take is not frames]

    def expect(self, tokens: Sequence[int]) -> None:
        """Add texts with these token counts to what is still to be spoken."""
        self.expected = max(self.expected, self.done + sum(map(expected_frames, tokens)))

    def add(self, frames: int) -> None:
        """Count finished frames; 0 only gives ``report`` a chance to cancel."""
        self.done += frames
        self.expected = max(self.expected, self.done + 1)
        if self._report is not None:
            self._report(self.done, self.expected)


class Estimate:
    """How long speech will be, and how long the rest takes at the speed of this run."""

    def __init__(self) -> None:
        self._begun: tuple[int, float] | None = None  # frames, and at what time

    def describe(self, done: int, expected: int, pieces: int, now: float) -> str:
        """Return the estimate in words, "" for short speech. ``done`` and ``expected`` are frames, ``now`` seconds."""
        if expected < LONG_S * FRAME_RATE:
            return ""
        if done and self._begun is None:
            self._begun = done, now
        cut = f" in about {pieces:,} pieces" if pieces > 1 else ""
        said = f"about {in_words(expected / FRAME_RATE)} of speech{cut}"
        if self._begun is None or done - self._begun[0] < MEASURED_FRAMES:
            return said
        begun, since = self._begun
        left = (now - since) / (done - begun) * (expected - done)
        return f"{said}, {100 * done // expected} % done, about {in_words(left)} left"


def in_words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"

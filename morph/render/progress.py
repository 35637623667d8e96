"""How far a rendering is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

OnFrame = Callable[[int, int], None]
"""Called with (frames done, frames expected) once per frame; what it raises cancels the rendering."""


@dataclass
class Progress:
    """Counts frames for ``report``, and expects as many as texts of these ``tokens`` take: about 4 per token."""

    tokens: list[int]
    report: OnFrame | None
    done: int = 0
    expected: int = field(init=False)

    def __post_init__(self) -> None:
        self.expected = sum(map(self._frames, self.tokens))

    @staticmethod
    def _frames(tokens: int) -> int:
        return 10 + 4 * tokens

    def expect(self, tokens: Sequence[int]) -> None:
        """Take more texts."""
        self.expected = max(self.expected, self.done + sum(map(self._frames, tokens)))

    def add(self, frames: int) -> None:
        """Take frames that were made; 0 only looks whether to go on."""
        self.done += frames
        self.expected = max(self.expected, self.done + 1)
        if self.report is not None:
            self.report(self.done, self.expected)

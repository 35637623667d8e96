"""Decide when a line must end without an EOS: a frame cap that grows with its text, and a loop detector.

Upstream has neither: a line that misses its EOS runs on to ``max_new_tokens`` (8192 frames, eleven minutes).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

# A loop is five seconds in which group 0 repeats with one period. Sustained sounds and silence stay below it.
LOOP_WINDOW = 64
LONGEST_PERIOD = 16
LOOP_AGREEMENT = 0.97
WINDOW_BITS = (1 << LOOP_WINDOW) - 1
# The windows of all periods in one number, as a field each; this clears what a shift carries into the next field.
SHIFTED = sum(((1 << LOOP_WINDOW) - 2) << LOOP_WINDOW * index for index in range(LONGEST_PERIOD))


@dataclass
class Guard:
    """Follows one line's group 0 codes."""

    max_frames: int  # the line's cap
    detect_loops: bool = True
    frames: int = 0
    ordered: str | None = None  # why the line is to end with its next frame, by another's decision
    _recent: deque[int] = field(default_factory=lambda: deque(maxlen=LONGEST_PERIOD))
    _agreed: int = 0

    def add(self, code: int) -> str | None:
        """Add a frame's code; return why the line must end now ("cap", "loop", or as ordered), or None."""
        self.frames += 1
        if self.ordered is not None:
            return self.ordered
        if self.detect_loops and self._loops(code):
            return "loop"
        return "cap" if self.frames >= self.max_frames else None

    def _loops(self, code: int) -> bool:
        """Compare this code with the ones before it; return whether one period fills the window.

        Field ``p - 1`` of ``_agreed`` has one bit per frame of the window, set if the code p frames earlier was the
        same. A large batch leaves a microsecond per line: most codes are not among those before.
        """
        agreed = self._agreed << 1 & SHIFTED
        if code in self._recent:
            agreed |= sum(
                1 << LOOP_WINDOW * index for index, before in enumerate(self._recent) if before == code
            )
        self._recent.appendleft(code)
        self._agreed = agreed
        if self.frames < LOOP_WINDOW + LONGEST_PERIOD or agreed.bit_count() < LOOP_AGREEMENT * LOOP_WINDOW:
            return False
        fields = (agreed >> LOOP_WINDOW * index & WINDOW_BITS for index in range(LONGEST_PERIOD))
        return any(bits.bit_count() >= LOOP_AGREEMENT * LOOP_WINDOW for bits in fields)

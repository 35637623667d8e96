"""Watch one line for its end: a cap that grows with its text, and a detector of loops.

Upstream has neither: a line that misses its EOS runs on to ``max_new_tokens`` (8192 frames, eleven minutes).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

# Speech takes about 4 frames a text token (12.5 frames a second, 3 tokens a second); slow, dramatic reading 8.
FRAMES_PER_TOKEN = 12
FRAMES_TO_SPARE = 75
# Five seconds in which group 0 repeats with one period. Held notes and silences stay below it.
LOOP_WINDOW = 64
LONGEST_PERIOD = 16
LOOP_AGREEMENT = 0.97
WINDOW_BITS = (1 << LOOP_WINDOW) - 1


def text_cap(text_tokens: int) -> int:
    """The most frames that a text of so many tokens may take: 6 s and about a second a token."""
    return FRAMES_TO_SPARE + FRAMES_PER_TOKEN * text_tokens


@dataclass
class Guard:
    """Follows one line's group 0 codes.

    Args:
        max_frames: the line's cap.
        detect_loops: whether to look for loops.
    """

    max_frames: int
    detect_loops: bool = True
    frames: int = 0
    _recent: deque[int] = field(default_factory=lambda: deque(maxlen=LONGEST_PERIOD))
    _agreed: list[int] = field(default_factory=lambda: [0] * LONGEST_PERIOD)

    def add(self, code: int) -> str | None:
        """Take a finished frame's group 0 code; say why the line must end now ("cap", "loop"), or None."""
        self.frames += 1
        if self.detect_loops and self._loops(code):
            return "loop"
        return "cap" if self.frames >= self.max_frames else None

    def _loops(self, code: int) -> bool:
        """Note with which of the codes before it this one agrees; say whether one period fills the window.

        ``_agreed[p - 1]`` has a bit a frame of the window, set where the code of p frames before was the same: many
        lines in one batch leave a few microseconds for each.
        """
        for place, before in enumerate(self._recent):
            self._agreed[place] = (self._agreed[place] << 1 | (code == before)) & WINDOW_BITS
        self._recent.appendleft(code)
        if self.frames < LOOP_WINDOW + LONGEST_PERIOD:
            return False
        return any(bits.bit_count() >= LOOP_AGREEMENT * LOOP_WINDOW for bits in self._agreed)

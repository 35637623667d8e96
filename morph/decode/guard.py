"""Limits of a line that misses its EOS: a frame cap that grows with its text, and a loop detector.

Upstream has neither: such a line runs on to ``max_new_tokens`` (8192 frames, eleven minutes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

# A loop is five seconds in which group 0 repeats with one period. Sustained sounds and silence stay below it.
LOOP_WINDOW = 64
LONGEST_PERIOD = 16
LOOP_AGREEMENT = 0.97


@dataclass
class Guard:
    """The limits of one line; ``max_frames`` changes while its text comes."""

    max_frames: int
    detect_loops: bool = True


class FollowsWords(Protocol):
    """Notices wrong words of a line from its alignment (``words/guard.py``)."""

    def take(self, token: int, weight: float) -> object | None:
        """Add a frame; return a fault, or None."""

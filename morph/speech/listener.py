"""Callbacks for a rendering that finishes lines out of order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .lines import Spoken
from .progress import OnFrame


@dataclass(frozen=True)
class Listener:
    """Callbacks of a rendering; what one of them raises ends it.

    Args:
        on_frame: see ``OnFrame``.
        on_phase: called with a few words.
        on_sound: called with the index of a line and samples of its first take, float32 ``[n]``.
        on_line: called with the index of a line that is made, and the line.
    """

    on_frame: OnFrame = lambda _done, _expected: None
    on_phase: Callable[[str], None] = lambda _: None
    on_sound: Callable[[int, np.ndarray], None] = lambda _index, _samples: None
    on_line: Callable[[int, Spoken], None] = lambda _index, _spoken: None

    @property
    def hears_sound(self) -> bool:
        """Whether samples are wanted while a line is made."""
        return self.on_sound is not Listener.on_sound

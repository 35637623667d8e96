"""Evict a line that stalls on late text while others are queued."""

from __future__ import annotations

import time
from collections.abc import Callable

STAND_S = 10.0  # beyond the seconds that the line has spoken
TOO_LATE = (
    f"the text came too late: the line's row stood still for {STAND_S:g} s longer than it spoke, while others waited "
    "for a row; give the text sooner, or choose layout sentence, which keeps no row"
)


class Standing:
    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._stood_s = 0.0
        self._since: float | None = None

    def note(self, stands: bool) -> None:
        now = self._clock()
        if self._since is not None:
            self._stood_s += now - self._since
        self._since = now if stands else None

    def exceeds(self, spoken_s: float) -> bool:
        """Return whether this is too long for a line that has spoken for ``spoken_s``."""
        return self._stood_s >= STAND_S + spoken_s

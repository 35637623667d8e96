"""How long a line may keep a row that stands still, because its text is late, while others wait for one."""

from __future__ import annotations

import time
from collections.abc import Callable

STAND_S = 10.0  # longer than the line has spoken
TOO_LATE = (
    f"the text came too late: the line's row stood still for {STAND_S:g} s longer than it spoke, while others waited "
    "for a row; give the text sooner, or choose layout sentence, which keeps no row"
)


class Standing:
    """The time in which a line's row has stood still while others waited.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._stood_s = 0.0
        self._since: float | None = None

    def note(self, stands: bool) -> None:
        """Note whether the row stands still now, and others wait."""
        now = self._clock()
        if self._since is not None:
            self._stood_s += now - self._since
        self._since = now if stands else None

    def exceeds(self, spoken_s: float) -> bool:
        """Return whether this is too long for a line that has spoken for ``spoken_s`` seconds."""
        return self._stood_s >= STAND_S + spoken_s

"""The policy by which lines get rows, as rules of ``queue.py`` and ``running.py``.

1. A lower ``order`` goes first.
2. Streamed lines go by deadline: when their player runs dry; a new one can wait for START_S. Deadlines of the same
   START_S, and all that have passed, are equal: then the caller with the fewest rows goes first.
3. Offline lines take the rows that are left. While streams take all rows, offline ones get every fourth that is free.

``lab/scheduler.py`` has the same policy as one queue for a whole process, with groups that alternate frame by frame.
"""

from typing import TypeAlias

START_S = 0.5  # a new line that begins so much later is better than a player that runs dry
FAR_S = 3600.0  # all that can wait for so long are equal
OFFLINE_SHARE = 4  # one row in so many is for offline lines

Group: TypeAlias = tuple[object, ...]
"""What the lines of one frame have in common: SEQ_GROUPS and tail."""


class Busy(Exception):
    """The queue is full: try again later."""

    @classmethod
    def of(cls, most: float) -> "Busy":
        return cls(f"{most:.0f} lines wait already: try again later")


def urgency(deadline: float, now: float) -> float:
    """Return a deadline as callers are compared by it, 0 or more."""
    return min(max(0.0, deadline - now), FAR_S) // START_S

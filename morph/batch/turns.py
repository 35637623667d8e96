"""Give the running batch to groups of lines in turn, by time, so that none waits for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from .policy import Group

TURN_S = 2.0  # how long lines of the running group pass those of another


class Turns:
    """The turns of groups; the group that has waited longest is next. Not thread-safe.

    A turn ends TURN_S after it began or after another group began to wait, whichever is later.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._running: Group | None = None
        self._began = 0.0
        self._since: dict[Group, float] = {}  # when each of the other groups began to wait

    def begin(self, group: Group) -> None:
        self._running, self._began = group, self._clock()
        self._since.pop(group, None)

    def end(self) -> None:
        """Note that no group has the batch: the last group goes to the end of the queue."""
        self._running = None

    def note(self, groups: Iterable[Group]) -> None:
        """Note which groups have lines that could be spoken, the first one first."""
        now = self._clock()
        self._since = {
            group: self._since.get(group, now) for group in dict.fromkeys(groups) if group != self._running
        }

    @property
    def next(self) -> Group | None:
        """The group that has waited longest, or None."""
        return min(self._since, key=lambda group: self._since[group], default=None)

    @property
    def left_s(self) -> float | None:
        """Seconds left of the turn; None while no other group waits."""
        if not self._since:
            return None
        began = max(self._began, min(self._since.values()))
        return max(0.0, began + TURN_S - self._clock())

    @property
    def is_over(self) -> bool:
        return self.left_s == 0.0

"""What takes long because it is done for the first time: functions run directly, then are captured, then replayed."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


class FirstTimes:
    """Counts first calls and captures. Those that come after ``settle`` hold up lines: each is logged with its key."""

    def __init__(self) -> None:
        self.captures = 0  # graphs that have been captured
        self.late = 0  # first calls and captures after ``settle``
        self.seconds = 0.0  # that all of them have taken on the host
        self._settled = False

    def settle(self) -> None:
        """Say that all is done that was foreseen."""
        self._settled = True

    @contextmanager
    def noted(self, key: Hashable, captures: bool) -> Iterator[None]:
        """Note that the function of this key is called for the first time in the block, or that it is captured."""
        began = time.perf_counter()
        yield
        took = time.perf_counter() - began
        self.seconds += took
        self.captures += captures
        if self._settled:
            self.late += 1
            done = "captured" if captures else "run for the first time"
            log.warning("%s was %s while lines may wait: %.0f ms", describe(key), done, 1000 * took)


def describe(key: Hashable) -> str:
    """Return the key of a graph in words."""
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)

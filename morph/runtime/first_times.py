"""Functions that are slow the first times: they run directly, then are captured, then replayed."""

import logging
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


class FirstTimes:
    """Counts first calls and captures, and logs those after ``settle``: they hold up lines."""

    def __init__(self) -> None:
        self.captures = 0  # captured graphs
        self.late = 0  # first calls and captures after ``settle``
        self.seconds = 0.0  # host time of all of them
        self._settled = False

    def settle(self) -> None:
        self._settled = True

    @contextmanager
    def noted(self, key: Hashable, captures: bool) -> Iterator[None]:
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
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)

"""Functions that are slow the first times: they run directly, then are captured, then replayed."""

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

log = logging.getLogger(__name__)


# What is prepared behind a line alone, in the order of need.
TOGETHER, LONG, COMPLETE = range(
    3
)  # lines that begin together, long lines, and the codec's rows of complete lines


class Lacking(Protocol):
    def lacks(self, key: Hashable) -> bool:
        """Return whether a graph of this key can be captured and is not yet."""


@dataclass(frozen=True)
class Planned:
    """A graph to capture: ``call`` runs its function, the first time directly."""

    need: int
    graphs: Lacking
    key: Hashable
    call: Callable[[], object]

    @property
    def is_missing(self) -> bool:
        return self.graphs.lacks(self.key)


class FirstTimes:
    """Counts first calls and captures, and logs those that hold up lines: after ``settle``, and not planned.

    What is planned is done bit by bit, while no line waits.
    """

    def __init__(self) -> None:
        self.captures = 0  # captured graphs
        self.late = 0  # first calls and captures that held up lines
        self.seconds = 0.0  # host time of all of them
        self._planned: list[Planned] = []
        self._settled = self._follows_plan = False

    def plan(self, new: Planned) -> None:
        others = [one for one in self._planned if one.graphs is not new.graphs or one.key != new.key]
        self._planned = sorted([*others, new], key=lambda one: one.need)

    def forget(self, graphs: Lacking) -> None:
        """Drop what is planned for some graphs."""
        self._planned = [one for one in self._planned if one.graphs is not graphs]

    @property
    def planned(self) -> int:
        """How many graphs are captured, or will be."""
        return self.captures + sum(one.is_missing for one in tuple(self._planned))

    def prepare_next(self) -> bool:
        """Do the next first call or capture that is planned; return whether there was one."""
        while self._planned:
            one = self._planned.pop(0)
            if one.is_missing:
                self._follows_plan = True
                try:
                    one.call()
                finally:
                    self._follows_plan = False
                self._planned.insert(0, one)  # after a direct call it is captured next
                return True
        return False

    def settle(self) -> None:
        self._settled = True

    @contextmanager
    def noted(self, key: Hashable, captures: bool) -> Iterator[None]:
        began = time.perf_counter()
        yield
        took = time.perf_counter() - began
        self.seconds += took
        self.captures += captures
        if self._settled and not self._follows_plan:
            self.late += 1
            done = "captured" if captures else "run for the first time"
            log.warning("%s was %s while lines may wait: %.0f ms", describe(key), done, 1000 * took)


def describe(key: Hashable) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)

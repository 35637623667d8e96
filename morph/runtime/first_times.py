"""Functions that are slow the first times: they run directly, then are captured, then replayed."""

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)


# What is prepared behind a line alone, by need: for lines that begin together, for long ones, for complete ones.
TOGETHER, LONG, COMPLETE = range(3)


class FirstTimes:
    """Counts first calls and captures, and logs those that hold up lines: after ``settle``, and not planned.

    What is planned is done bit by bit, while no line waits.
    """

    def __init__(self) -> None:
        self.captures = 0  # captured graphs
        self.late = 0  # first calls and captures that held up lines
        self.seconds = 0.0  # host time of all of them
        self._planned: dict[tuple[Any, Hashable], tuple[int, Callable[[], object]]] = {}
        self.is_settled = self._follows_plan = False

    def plan(self, need: int, graphs: Any, key: Hashable, call: Callable[[], object]) -> None:
        """Have ``call`` run the function of a key until it is captured; it returns False if it cannot now."""
        self._planned[graphs, key] = need, call

    def forget(self, graphs: Any) -> None:
        self._planned = {which: how for which, how in self._planned.items() if which[0] is not graphs}

    @property
    def planned(self) -> int:
        """How many graphs are captured, or will be."""
        return self.captures + sum(graphs.lacks(key) for graphs, key in tuple(self._planned))

    def prepare_next(self) -> bool:
        """Do the next first call or capture that is planned and can be done now; return whether there was one."""
        self._planned = {which: how for which, how in self._planned.items() if which[0].lacks(which[1])}
        for (graphs, _), (_, call) in sorted(self._planned.items(), key=lambda item: item[1][0]):
            self._follows_plan = True
            try:
                if call() is not False:
                    return True
            except Exception:
                self.forget(graphs)  # it would fail again
                raise
            finally:
                self._follows_plan = False
        return False

    @contextmanager
    def noted(self, key: Hashable, captures: bool) -> Iterator[None]:
        began = time.perf_counter()
        yield
        took = time.perf_counter() - began
        self.seconds += took
        self.captures += captures
        if self.is_settled and not self._follows_plan:
            self.late += 1
            done = "captured" if captures else "run for the first time"
            log.warning("%s was %s while lines may wait: %.0f ms", describe(key), done, 1000 * took)


def describe(key: Hashable) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)

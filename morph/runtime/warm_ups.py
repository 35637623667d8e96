"""Warm-up of captured functions, planned for idle times: their first two calls are slow."""

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger(__name__)


# Priorities, after what one line needs: batches that begin together, long lines, offline lines.
TOGETHER, LONG, OFFLINE = range(3)


class WarmUps:
    """Planned warm-up calls and captures, and counts of all.

    A warm-up that was not planned delays lines: once ``is_settled``, it is logged.
    """

    def __init__(self) -> None:
        self.captures = 0  # captured graphs
        self.late = 0  # warm-ups that delayed lines
        self.seconds = 0.0  # host time of all of them
        self._planned: dict[tuple[Any, Hashable], tuple[int, Callable[[], object]]] = {}
        self.is_settled = self._follows_plan = False

    def plan(self, priority: int, graphs: Any, key: Hashable, call: Callable[[], object]) -> None:
        """Plan to repeat ``call`` until the function of a key is captured; it returns False if it cannot run now."""
        self._planned[graphs, key] = priority, call

    def forget(self, graphs: Any) -> None:
        self._planned = {which: how for which, how in self._planned.items() if which[0] is not graphs}

    @property
    def planned(self) -> int:
        """How many graphs are captured or planned."""
        return self.captures + sum(graphs.lacks(key) for graphs, key in tuple(self._planned))

    def prepare_next(self) -> bool:
        """Run the next planned warm-up that can run now; return whether there was one."""
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

"""Python's garbage collector, while sound is made."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def spare_older_objects() -> None:
    """Have the collector leave alone what is there now, modules and the model, as long as the process lives."""
    gc.collect()
    gc.freeze()


class Pauses:
    """Counts the pauses that the collector makes, from ``begin`` to ``end``: all threads stand still in them."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = self.longest = 0.0
        self._began: float | None = None  # of the one that goes on

    def begin(self) -> None:
        """Count from now on."""
        gc.callbacks.append(self._note)

    def end(self) -> None:
        """Count no more."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        elif self._began is not None:
            took, self._began = time.perf_counter() - self._began, None
            self.count += 1
            self.seconds += took
            self.longest = max(self.longest, took)


@contextmanager
def older_objects_spared() -> Iterator[None]:
    """Have the collector look only at objects that are made in the block.

    A look at everything else, modules, models and whatever the host program keeps, stops all threads for 100 ms and
    more. Streams start with less sound than that. Where somebody has done so before, for longer, nothing changes.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

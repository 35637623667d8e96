"""Python's garbage collector during synthesis."""

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class FreezeCount:
    """Reference-counted ``gc.freeze()``. ``gc.get_freeze_count`` takes 0.1 s for a model: it is called once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._is_ours = False  # nothing was frozen before

    def for_good(self) -> None:
        """Exempt all current objects, the model's too, from collection until the process ends."""
        with self._lock:
            gc.collect()
            gc.freeze()
            self._wanted += 1

    @contextmanager
    def in_block(self) -> Iterator[None]:
        """Exempt current objects from collection in the block, unless the host program froze its own."""
        # A full collection stops all threads for over 100 ms, more than a stream has buffered at its start.
        with self._lock:
            if not self._wanted:
                self._is_ours = gc.get_freeze_count() == 0
                if self._is_ours:
                    gc.freeze()
            self._wanted += 1
        try:
            yield
        finally:
            with self._lock:
                self._wanted -= 1
                if not self._wanted and self._is_ours:
                    gc.unfreeze()


# One for the process, as the collector is.
_COUNT = FreezeCount()
freeze_for_good, frozen_objects = _COUNT.for_good, _COUNT.in_block


class CollectorPauses:
    """The collector's pauses, in which all threads stop, from ``begin`` to ``end``."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = self.longest = 0.0
        self._began: float | None = None  # start of the current pause

    def begin(self) -> None:
        gc.callbacks.append(self._note)

    def end(self) -> None:
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

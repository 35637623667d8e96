"""Python's garbage collector, while sound is made."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Sparing:
    """Whether the collector looks only at new objects: it is one for the process, and several may want that at a time.

    To ask the collector takes a tenth of a second where there is something that it leaves alone: it counts that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._is_ours = False  # whether nobody else had done so before

    def for_good(self) -> None:
        """Have the collector leave alone what is there now, modules and the model, as long as the process lives."""
        with self._lock:
            gc.collect()
            gc.freeze()
            self._wanted += 1

    @contextmanager
    def in_block(self) -> Iterator[None]:
        """Have the collector look only at objects that are made in the block.

        A look at everything else, modules, models and whatever the host program keeps, stops all threads for 100 ms and
        more. Streams start with less sound than that. Where somebody has done so before, for longer, nothing changes.
        """
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


# One for the process, as the collector.
_SPARING = Sparing()
spare_older_objects, older_objects_spared = _SPARING.for_good, _SPARING.in_block


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

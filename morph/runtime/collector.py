"""Python's garbage collector during synthesis."""

import gc
import time
from collections.abc import Callable
from typing import Any

from .threads import SharedSetting


def _freeze() -> Callable[[], None]:
    # The count takes 0.1 s if a model is frozen: once for all blocks.
    if gc.get_freeze_count():  # the host program froze its own
        return lambda: None
    gc.freeze()
    return gc.unfreeze


# Exempts current objects from collection in a block, unless the host program froze its own. A full collection stops all
# threads for over 100 ms, more than a stream has buffered at its start.
_FROZEN = SharedSetting(_freeze)
frozen_objects = _FROZEN.block


def freeze_for_good() -> None:
    """Exempt all current objects, the model's too, from collection until the process ends."""
    gc.collect()
    _FROZEN.hold()
    gc.freeze()


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

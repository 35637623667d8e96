"""Python's garbage collector, while sound is made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def spare_older_objects() -> None:
    """Have the collector leave alone what is there now, modules and the model, as long as the process lives."""
    gc.collect()
    gc.freeze()


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

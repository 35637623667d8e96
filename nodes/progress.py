"""The engine's progress on ComfyUI's bar, and the cancel button's way into the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from comfy.model_management import throw_exception_if_processing_interrupted
from comfy.utils import ProgressBar

SHOWN_EVERY = 0.02  # seconds: frames come faster than a page can draw; cancelling is looked for at every one


@contextmanager
def show_progress(node_id: str | None) -> Iterator[Callable[[int, int], None]]:
    """Give a function that takes (done, expected), in frames or bytes, and moves the node's bar.

    It raises ComfyUI's own exception once the user has cancelled; let it pass. The expectation may be off:
    the bar is filled when the ``with`` ends well.
    """
    bar, shown = ProgressBar(1, node_id=node_id), -SHOWN_EVERY

    def update(done: int, expected: int) -> None:
        nonlocal shown
        throw_exception_if_processing_interrupted()
        now = time.monotonic()
        if now - shown >= SHOWN_EVERY:
            shown = now
            bar.update_absolute(done, expected)

    yield update
    bar.update_absolute(bar.total)

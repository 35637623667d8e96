"""The engine's progress on ComfyUI's bar, and the cancel button's way into the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from comfy.model_management import throw_exception_if_processing_interrupted
from comfy.utils import ProgressBar


@contextmanager
def show_progress(node_id: str | None) -> Iterator[Callable[[int, int], None]]:
    """Give a function that takes (done, expected), in frames or bytes, and moves the node's bar.

    It raises ComfyUI's own exception once the user has cancelled; let it pass. The expectation may be off:
    the bar is filled when the ``with`` ends well.
    """
    bar = ProgressBar(1, node_id=node_id)

    def update(done: int, expected: int) -> None:
        throw_exception_if_processing_interrupted()
        bar.update_absolute(done, expected)

    yield update
    bar.update_absolute(bar.total)

"""Show the engine's progress in ComfyUI, and pass cancellation on to the engine."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from comfy.model_management import throw_exception_if_processing_interrupted
from comfy.utils import ProgressBar

# Seconds between updates of the bar: frames arrive faster than a page redraws. Cancellation is checked on every frame.
BAR_EVERY = 0.02


class NodeProgress:
    """One node's progress bar and status text.

    Call it with (done, expected), in frames or bytes, to move the bar. It and ``say`` raise ComfyUI's own exception
    once the user has cancelled; do not catch it.
    """

    def __init__(self, node_id: str | None):
        self._bar = ProgressBar(1, node_id=node_id)
        self._node_id = node_id
        self._bar_at = -BAR_EVERY

    def __call__(self, done: int, expected: int) -> None:
        throw_exception_if_processing_interrupted()
        now = time.monotonic()
        if now - self._bar_at >= BAR_EVERY:
            self._bar_at = now
            self._bar.update_absolute(done, expected)

    def say(self, text: str) -> None:
        """Show a short status text on the node: "loading", "line 3 of 12"."""
        from server import PromptServer

        throw_exception_if_processing_interrupted()
        server = PromptServer.instance  # type: ignore[attr-defined]  # set when ComfyUI starts
        if self._node_id is not None and server.client_id is not None:  # the page that queued the prompt
            server.send_progress_text(text, self._node_id, server.client_id)

    def show_image(self, image: np.ndarray) -> None:
        """Show uint8 RGB ``[H, W, 3]`` on the node while it runs, as samplers show their previews."""
        from PIL import Image

        self._bar.update_absolute(self._bar.current, preview=("PNG", Image.fromarray(image), None))

    def fill(self) -> None:
        """Fill the bar: the expected number of frames is an estimate."""
        self._bar.update_absolute(self._bar.total)


@contextmanager
def show_progress(node_id: str | None) -> Iterator[NodeProgress]:
    """Yield the node's progress; fill its bar if the ``with`` block ends without an error."""
    progress = NodeProgress(node_id)
    yield progress
    progress.fill()

"""The engine's progress on ComfyUI's bar and in words, and the cancel button's way into the engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from comfy.model_management import throw_exception_if_processing_interrupted
from comfy.utils import ProgressBar

SHOWN_EVERY = 0.02  # seconds: frames come faster than a page can draw; cancelling is looked for at every one
SAID_EVERY = 0.2  # seconds, for words with the same beginning ("line 3 of 12"): nobody reads faster


class Progress:
    """One node's bar and words: call it with (done, expected), in frames or bytes; ``say`` what is being done.

    Both raise ComfyUI's own exception once the user has cancelled; let it pass.
    """

    def __init__(self, node_id: str | None):
        self._bar = ProgressBar(1, node_id=node_id)
        self._node_id = node_id
        self._shown, self._said, self._words = -SHOWN_EVERY, -SAID_EVERY, ""

    def __call__(self, done: int, expected: int) -> None:
        throw_exception_if_processing_interrupted()
        now = time.monotonic()
        if now - self._shown >= SHOWN_EVERY:
            self._shown = now
            self._bar.update_absolute(done, expected)

    def say(self, text: str) -> None:
        """Show a few words on the node: "loading", "line 3 of 12".

        Repeated words are not sent again; of words with one beginning, those that come too fast are left out.
        """
        throw_exception_if_processing_interrupted()
        now = time.monotonic()
        another_phase = text.split(" ")[0] != self._words.split(" ")[0]
        if another_phase or (text != self._words and now - self._said >= SAID_EVERY):
            self._said, self._words = now, text
            send_words(text, self._node_id)

    def fill(self) -> None:
        """Fill the bar: the expectation may have been off."""
        self._bar.update_absolute(self._bar.total)


@contextmanager
def show_progress(node_id: str | None) -> Iterator[Progress]:
    """Give the node's progress; its bar is filled when the ``with`` ends well."""
    progress = Progress(node_id)
    yield progress
    progress.fill()


def send_words(text: str, node_id: str | None) -> None:
    """Send words to the page that queued the prompt; nothing where no page did."""
    from server import PromptServer

    server = PromptServer.instance  # type: ignore[attr-defined]  # set when ComfyUI starts
    if node_id is not None and server.client_id is not None:
        server.send_progress_text(text, node_id, server.client_id)

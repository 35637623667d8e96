"""What all line texts have in common, complete or late: their end."""

from __future__ import annotations

import threading


class LineText:
    """The text of a line, which yields pieces until it is done."""

    def __init__(self) -> None:
        # The normalizer reads this event. A reference to the text would form a cycle and leave each line to the garbage
        # collector, which stops all threads.
        self._done = threading.Event()
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def _end(self, error: BaseException | None) -> bool:
        """Note that no more pieces come; return whether that is new."""
        if self.done:
            return False
        self.error = error
        self._done.set()
        return True

"""What all texts of lines have in common, whether they come in parts or are there: their end."""

from __future__ import annotations

import threading


class LineText:
    """The text of a line, which gives pieces until it is done.

    ``error``: what ended it, None if nothing went wrong.
    """

    def __init__(self) -> None:
        # The normalizer asks this. If it asked the text, the two would refer to each other, and each line would be left
        # to the garbage collector, which stops all threads.
        self._done = threading.Event()
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether no piece will come any more."""
        return self._done.is_set()

    def _end(self, error: BaseException | None) -> bool:
        """Note that no piece will come any more; return whether that is new."""
        if self.done:
            return False
        self.error = error
        self._done.set()
        return True

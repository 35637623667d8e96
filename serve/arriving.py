"""Text that a client sends in parts, as the iterator that a line reads in a thread of its own."""

from __future__ import annotations

import queue
from collections.abc import Iterator

_END = object()


class ArrivingText:
    """Strings that are put in by one thread and read by another.

    Args:
        longest: characters of all of them.
    """

    def __init__(self, longest: int):
        self._left = longest
        self._parts: queue.SimpleQueue[object] = queue.SimpleQueue()

    def put(self, part: str) -> bool:
        """Add a part; return whether it was not too long."""
        self._left -= len(part)
        if self._left >= 0:
            self._parts.put(part)
        return self._left >= 0

    def end(self) -> None:
        """The text is complete, or nobody wants the rest: release the reader. May be called again."""
        self._parts.put(_END)

    def __iter__(self) -> Iterator[str]:
        while isinstance(part := self._parts.get(), str):
            yield part

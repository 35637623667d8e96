"""Text that a client sends in parts, as the iterator that a line reads in a thread of its own."""

from __future__ import annotations

import queue
from collections.abc import Iterator

from .errors import ApiError
from .request import read_silence

_END = object()


class ArrivingText:
    """Text added by one thread and read by another; at most ``longest`` characters in all."""

    def __init__(self, longest: int):
        self._longest = self._left = longest
        self._open = ""  # after the last bracket that closes: what the next part may complete
        self._silence = 0.0
        self._parts: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._text: list[str] = []

    def put(self, part: str) -> None:
        """Add a part; ApiError 413 for too much text, 400 for a wrong pause or too much silence in all."""
        self._left -= len(part)
        if self._left < 0:
            raise ApiError(
                413, f"the text has more than {self._longest} characters: open a socket for each part", "text"
            )
        tail = self._open + part
        complete = tail.rfind("]") + 1
        self._silence = read_silence(tail[:complete], "text", self._silence)
        self._open = tail[complete:]
        self._text.append(part)
        self._parts.put(part)

    def __str__(self) -> str:
        return "".join(self._text)

    def end(self) -> None:
        """Release the reader: the text is complete, or nobody wants the rest. May be called again."""
        self._parts.put(_END)

    def __iter__(self) -> Iterator[str]:
        while isinstance(part := self._parts.get(), str):
            yield part

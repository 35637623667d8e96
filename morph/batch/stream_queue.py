"""The pieces of a stream that wait for a row, in the order of decoding; some come while others are decoded."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..decode.request import LineRequest


@dataclass(order=True)
class _Waiting:
    key: tuple[int, ...]
    line: int
    request: LineRequest = field(compare=False)


class StreamQueue:
    """The ``LineSource`` of a stream.

    Args:
        follow: called before each look at the queue; it adds the pieces that have come.
        rest: waits for some.
        late: whether any can come.
        meanwhile: see ``LineSource``.
        joins: likewise; of lines that join others nothing is collected, each has a reader of its own.
    """

    def __init__(
        self,
        follow: Callable[[], None],
        rest: Callable[[], None],
        late: bool,
        meanwhile: Callable[[], None],
        joins: int = 0,
    ):
        self._follow, self._rest, self._meanwhile = follow, rest, meanwhile
        self.late = self.open = late
        self.collected, self.joins = not joins, joins
        self._waiting: list[_Waiting] = []

    @property
    def ready(self) -> Sequence[LineRequest]:
        """See ``LineSource``."""
        self._follow()
        return [one.request for one in self._waiting]

    @property
    def done(self) -> bool:
        """See ``LineSource``."""
        return not self._waiting and not self.open

    def take(self) -> LineRequest:
        """See ``LineSource``."""
        return self._waiting.pop(0).request

    def meanwhile(self) -> None:
        """See ``LineSource``."""
        self._meanwhile()

    def wait(self) -> None:
        """See ``LineSource``."""
        self._rest()

    def add(self, key: tuple[int, ...], line: int, request: LineRequest) -> None:
        """Queue a line's piece at its place in the order of decoding."""
        insort(self._waiting, _Waiting(key, line, request))

    def count(self, line: int) -> int:
        """Return how many pieces of a line wait."""
        return sum(one.line == line for one in self._waiting)

    def drop_cancelled(self) -> None:
        """End the pieces of lines that are to end before they have a row."""
        dropped = [one for one in self._waiting if one.request.is_cancelled]
        self._waiting = [one for one in self._waiting if not one.request.is_cancelled]
        for one in dropped:
            one.request.end("cancelled")

"""The servers that speak the lines of one ``Server``, which may have several addresses: each takes the lines it can."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

from .attempts import Attempts
from .connection import Answer, Connection, Hearer
from .failure import Failure
from .payload import Job

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Place:
    """A server at one address.

    Args:
        name: its address.
        attempts: at its lines.
        most: how many lines it takes at once.
    """

    name: str
    attempts: Attempts
    most: int
    lines: int = 0
    is_gone: bool = False

    @property
    def load(self) -> float:
        """Its lines for each that it takes."""
        return self.lines / self.most


class Places:
    """Gives lines to servers: each to the one that has fewest for what it takes. It is used in one thread.

    Args:
        connections: to each server, and how many lines it takes at once.
    """

    def __init__(self, connections: Sequence[tuple[Connection, int]]):
        self._all = [
            Place(one.url, Attempts(one, partial(self._is_alone, one.url)), most) for one, most in connections
        ]
        self._of: dict[Hashable, Place] = {}

    @property
    def _there(self) -> list[Place]:
        return [place for place in self._all if not place.is_gone]

    def _is_alone(self, name: str) -> bool:
        return all(place.name == name for place in self._there)

    @property
    def has_room(self) -> bool:
        """Whether one of them takes another line."""
        return any(place.lines < place.most for place in self._there)

    def take(self, line: Hashable) -> None:
        """Give a line to one that has room."""
        place = self._of[line] = min(self._there, key=lambda place: place.load)
        place.lines += 1

    def free(self, line: Hashable) -> None:
        """Note that a line has ended."""
        self._of.pop(line).lines -= 1

    def name(self, line: Hashable) -> str:
        """Return which server has a line; "" where there is one alone."""
        return self._of[line].name if len(self._all) > 1 else ""

    async def speak(self, line: Hashable, job: Job, hear: Callable[[], Hearer]) -> Answer:
        """See ``Attempts.speak``; a line of a server that is gone is spoken at another one, from its beginning."""
        while True:
            try:
                return await self._of[line].attempts.speak(job, hear)
            except Failure as error:
                if not error.remedy.ends_all or not self._leave(line, error):
                    raise

    def _leave(self, line: Hashable, error: Failure) -> bool:
        """Give a line to another server, as its own is gone, until the end of the run; return whether there is one."""
        place = self._of[line]
        if self._is_alone(place.name):
            return False
        if not place.is_gone:
            place.is_gone = True
            log.warning(
                "%s; its lines are spoken at %s", error, " and ".join(one.name for one in self._there)
            )
        self.free(line)
        self.take(line)
        return True

"""Where the lines of a ``SpeechService`` wait, for a row or for their readers, and what the running batch does."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..runtime.bell import Bell
from .between import Between
from .turns import Turns
from .utterance import Group, Parked, Utterance


class Busy(Exception):
    """As many lines wait as may wait: try again later."""


class ServiceClosed(Exception):
    """The service speaks no more lines."""


@dataclass(frozen=True)
class ServiceStatus:
    """What a service does now.

    Args:
        rows: how many lines it speaks at a time.
        speaking: how many it speaks now.
        waiting: how many wait for a row, and could be spoken.
        parked: how many have begun and have no row: for a slow reader, for more text, or for a turn of their group.
        silent: how many have not begun, because nothing of their text can be spoken yet.
        frames: of all lines, since it was created.
        frame_s: seconds that a frame of the running batch takes, 0 if it is not known.
    """

    rows: int
    speaking: int
    waiting: int
    frames: int
    frame_s: float
    parked: int = 0
    silent: int = 0


class Desk:
    """A queue of lines, first come first served within a group. Any thread puts; one thread takes.

    Args:
        rows: of the running batch.
        waiting: how many lines may wait; as many more may have nothing to speak yet, and as many more than rows may
            have begun: for slow readers, or without text.
    """

    def __init__(self, rows: int, waiting: int):
        self.bell = Bell()  # set whenever there is something to look at
        self.between = Between(self.bell)  # what needs the model and is no line
        self._rows, self._most = rows, waiting
        self._lock = threading.RLock()
        self._waiting: deque[Utterance] = deque()
        self._parked: list[Utterance] = []
        self._turns = Turns()
        self._closed = False
        self._speaking, self._frames, self._frame_s = 0, 0, 0.0

    def put(self, utterance: Utterance) -> None:
        """Queue a line.

        Raises:
            Busy: if too many wait.
            ServiceClosed: if the service is closed.
        """
        with self._locked():
            if self._closed:
                raise ServiceClosed("the service is closed: create another")
            ready = sum(one.is_ready for one in self._waiting)
            if ready >= self._most:
                raise Busy(f"{self._most} lines wait already: try again later")
            if utterance.reader is not None and len(self._waiting) - ready >= self._most:
                raise Busy(f"{self._most} lines wait for their texts already: try again later")
            self._waiting.append(utterance)
        self.bell.set()

    def first(self) -> Utterance | None:
        """Return the next line of the group whose turn it is, without taking it; no batch runs."""
        with self._locked():
            ready = self._look()
            group = self._turns.next
            return next((one for one in ready if one.group == group), None)

    @property
    def _has_room(self) -> bool:
        """Whether another line may begin. One that has begun needs no room to go on, so no reader waits for ever."""
        return self._speaking + len(self._parked) < self._rows + self._most

    def park(self, utterance: Utterance, line: Parked) -> None:
        """Keep a line until its reader wants more; then it is next, before those that have not begun."""
        with self._lock:
            utterance.parked = line
            self._parked.append(utterance)
        if self._closed:
            self.close()

    def _look(self) -> list[Utterance]:
        """Return the lines that could be spoken now, in their order: those that have begun, then the others."""
        ready = [one for one in self._parked if one.is_ready]
        if self._has_room:
            ready += [one for one in self._waiting if one.is_ready]
        self._turns.note(one.group for one in ready)
        return ready

    def _offered(self, group: Group) -> Utterance | None:
        """The next line of this group, or one of another that needs the codec only; none once the turn is over."""
        ready = self._look()
        if self._closed or self._turns.is_over:
            return None
        return next((one for one in ready if one.group == group or one.is_made), None)

    def offers(self, group: Group) -> bool:
        """Return whether ``take`` would return a line."""
        with self._locked():
            return self._offered(group) is not None

    def take(self, group: Group) -> Utterance | None:
        """Remove the next line for a batch of this group and return it."""
        with self._locked():
            if (utterance := self._offered(group)) is not None:
                self._remove(utterance)
            return utterance

    def _remove(self, utterance: Utterance) -> None:
        place = self._waiting if utterance in self._waiting else self._parked
        place.remove(utterance)

    def drop(self, utterance: Utterance, error: BaseException) -> None:
        """End a line that is still here with an error."""
        with self._lock:
            if utterance not in self._waiting and utterance not in self._parked:
                return
            self._remove(utterance)
        utterance.finish(None, error)

    # Turns of groups

    def begin(self, group: Group) -> None:
        """A batch of this group begins."""
        with self._lock:
            self._turns.begin(group)

    def end(self) -> None:
        """The batch has ended."""
        with self._lock:
            self._turns.end()
        self.note_speaking(0)

    def continues(self, group: Group) -> bool:
        """Return whether a batch of this group that has no line waits for one: no other group does."""
        with self._locked():
            return not self._closed and all(one.group == group for one in self._look())

    @property
    def is_asked(self) -> bool:
        """Whether lines that could be spoken have no row."""
        with self._locked():
            return bool(self._look())

    @property
    def turn_left_s(self) -> float | None:
        """Seconds until the batch is to be left to another group, None while none waits."""
        with self._locked():
            self._look()
            return self._turns.left_s

    def leave(self) -> None:
        """Have the thread that takes lines call ``close``. Takes no lock: the garbage collector calls it, wherever."""
        self._closed = True
        self.bell.set()

    def close(self) -> None:
        """Take no more lines; those that wait are ended."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = [*self._parked, *self._waiting], deque()
            self._parked = []
        for utterance in waiting:
            utterance.finish(None, ServiceClosed("the service was closed before this line was spoken"))
        self.between.end(ServiceClosed("the service was closed before this was done"))
        self.bell.set()

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` or ``leave`` was called."""
        return self._closed

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, without the lines whose readers have left. Those are ended behind it: they tell others."""
        leavers: list[Utterance] = []
        try:
            with self._lock:
                leavers = [one for one in (*self._waiting, *self._parked) if one.is_closed]
                for utterance in leavers:
                    self._remove(utterance)
                yield
        finally:
            for utterance in leavers:
                utterance.leave()

    # What the batch reports

    def note_speaking(self, lines: int) -> None:
        """Note how many lines have a row."""
        self._speaking = lines

    def note_frames(self, frames: int, frame_s: float) -> None:
        """Note that frames were made, and what one takes."""
        self._frames += frames
        self._frame_s = frame_s

    @property
    def status(self) -> ServiceStatus:
        """See ``ServiceStatus``."""
        with self._lock:
            waiting = sum(one.is_ready for one in self._waiting)
            silent, parked = len(self._waiting) - waiting, len(self._parked)
        return ServiceStatus(self._rows, self._speaking, waiting, self._frames, self._frame_s, parked, silent)

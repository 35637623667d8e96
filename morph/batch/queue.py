"""Queue lines for rows, park started lines, and report what the batch does."""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ..options import GenerateOptions
from ..runtime.bell import Bell
from ..speech.lines import LineReport, Spoken
from ..speech.piece import NO_SAMPLES
from ..speech.text_reader import TextReader
from .between import Between
from .policy import START_S, Busy, Group, urgency
from .speech import Outcome, Speech
from .turns import Turns


class BatchClosed(Exception):
    """The batch is closed."""


@dataclass(frozen=True)
class BatchStatus:
    """What a batch does now, in lines."""

    rows: int
    speaking: int
    waiting: int  # could be spoken, but have no row
    frames: int  # of all lines, since the batch was created
    frame_s: float  # seconds per frame, 0 if unknown
    parked: int = 0  # started, without a row: for a slow reader, text, or a turn of their group
    silent: int = 0  # not begun: none of their text can be spoken yet


class Parked(Protocol):
    """A started line that waits between two pieces, without a row or a codec state."""

    @property
    def is_made(self) -> bool:
        """Whether all codes are decoded, so that a batch of any group can make its samples."""

    @property
    def lacks_text(self) -> bool:
        """Whether it has nothing to speak before more text comes."""

    @property
    def deadline(self) -> float:
        """When its player runs dry, in seconds of ``time.perf_counter``; far away for a reader that has enough."""

    def abandon(self) -> None:
        """End the line: its reader has left."""


def group_of(options: GenerateOptions) -> Group:
    """Return the group of a line: the settings that a captured frame is made for."""
    return (options.seq_groups, options.tail)


class Waiting:
    """A line without a row; with a mark of its own in ``group``, it is spoken alone. ``rate`` is in Hz."""

    def __init__(self, speech: Speech, group: Group, rate: int):
        self.speech, self.group, self._rate = speech, group, rate
        line = speech.line
        self.reader = None if isinstance(line.text, str) else TextReader(line.text, speech.bell, line.layout)
        self.line: Parked | None = None  # once it has begun
        self._start_by = time.perf_counter() + START_S

    def start(self) -> None:
        """Begin to read a text that comes in parts. Raises RuntimeError, and ends the line, if no thread can start."""
        if self.reader is None:
            return
        try:
            self.reader.start()
        except RuntimeError as error:
            self.speech.cancel()
            raise RuntimeError(
                "no thread can be started for a text that comes in parts: try again later"
            ) from error

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()

    @property
    def is_ready(self) -> bool:
        """Whether it can be spoken or resumed: there is text, and its reader wants more."""
        if self.line is not None:
            return not (self.speech.is_full or self.line.lacks_text)
        return self.reader is None or self.reader.has_news

    @property
    def is_live(self) -> bool:
        return self.speech.is_live

    @property
    def deadline(self) -> float:
        return self._start_by if self.line is None else self.line.deadline

    @property
    def is_made(self) -> bool:
        return self.line is not None and self.line.is_made

    def leave(self) -> None:
        if self.line is not None:
            self.line.abandon()
            return
        line = self.speech.line
        text = line.text if isinstance(line.text, str) else ""
        report = LineReport(line.name, text, 0, 0.0, "cancelled", 0)
        self.fail(Outcome(report, Spoken(NO_SAMPLES, self._rate, report)))

    def fail(self, outcome: Outcome) -> None:
        self.speech.finish(outcome)
        self.close()


class Queue:
    """Queued lines, in the order of ``policy.py``. Any thread puts; one thread takes.

    ``waiting`` limits the queued lines, again the lines without text, and again the started lines beyond ``rows``.
    """

    def __init__(self, rows: int, waiting: int):
        self.bell = Bell()  # set at every change
        self.between = Between(self.bell)  # idle-time work
        self.counts = Counts()
        self._rows, self._most = rows, waiting
        self._lock = threading.RLock()
        self._waiting: list[Waiting] = []
        self._parked: list[Waiting] = []
        self._turns = Turns()
        self.callers = Counter[str]()  # lines of each caller that are in the batch
        self._closed = False
        self.has_model = False  # whether the batch thread holds the model

    def put(self, *lines: Waiting) -> None:
        """Queue lines, all or none, to begin together. Raises Busy if too many are queued, BatchClosed if closed."""
        with self._settled():
            self._check_room(lines)
            for one in lines:  # for groups, whose first lines come together
                insort(self._waiting, one, key=lambda other: other.speech.delivery.order)
        self.bell.set()

    def _check_room(self, lines: Sequence[Waiting]) -> None:
        if lines and self._closed:
            raise BatchClosed("the batch is closed: create another")
        ready = sum(other.is_ready for other in self._waiting)
        for before, one in enumerate(lines):
            if ready + self._without_row + before >= self._most:
                raise Busy.of(self._most)
            if one.reader is not None and len(self._waiting) - ready + before >= self._most:
                raise Busy(f"{self._most} lines wait for their texts already: try again later")

    @property
    def _without_row(self) -> int:
        """Admitted lines without a row, at least."""
        return max(0, self.counts.speaking - self._rows)

    def put_back(self, one: Waiting) -> None:
        """Queue a line that was taken, before all others."""
        with self._lock:
            self._waiting.insert(0, one)

    @property
    def has_live(self) -> bool:
        with self._lock:
            return any(one.is_live for one in self._waiting)

    def first(self) -> Waiting | None:
        """Return the next line of the group whose turn it is, without taking it; no batch runs."""
        with self._settled():
            ready = self._look()
            group = self._turns.next
            return self._best(one for one in ready if one.group == group)

    def of_group(self, group: Group) -> list[Waiting]:
        with self._lock:
            return [one for one in (*self._parked, *self._waiting) if one.group == group]

    @property
    def _has_room(self) -> bool:
        """Whether another line may begin. A started line needs no room to go on, so no reader waits for ever."""
        return self.counts.speaking + len(self._parked) < self._rows + self._most

    def park(self, one: Waiting, line: Parked) -> None:
        """Keep a line until its reader wants more."""
        with self._lock:
            one.line = line
            self._parked.append(one)
        if self._closed:
            self.close()

    def _look(self) -> list[Waiting]:
        ready = [one for one in self._parked if one.is_ready]
        if self._has_room:
            ready += [one for one in self._waiting if one.is_ready]
        self._turns.note([one.group for one in ready])
        return ready

    def _rank(self, one: Waiting, deadline: float) -> tuple[float, ...]:
        """Return what decides between lines: see ``policy.py``."""
        order, lines = one.speech.delivery.order, self.callers[one.speech.delivery.caller]
        if not one.is_live:
            return (order, 1, lines)
        return (order, 0, urgency(deadline, time.perf_counter()), lines, deadline)

    def _best(self, lines: Iterable[Waiting]) -> Waiting | None:
        return min(lines, key=lambda one: (not one.is_made, *self._rank(one, one.deadline)), default=None)

    def passes(self, one: Waiting, deadline: float) -> bool:
        """Return whether a queued line needs the row of a started one more, whose player runs dry at ``deadline``."""
        with self._settled():
            self.callers[one.speech.delivery.caller] -= 1  # it is compared as if it were queued
            other = self._offered(one.group)
            passes = other is not None and self._rank(other, other.deadline) < self._rank(one, deadline)
            self.callers[one.speech.delivery.caller] += 1
            return passes

    def _offered(self, group: Group, offline: bool = False) -> Waiting | None:
        """The next line of this group, or of another that needs only the codec; None once the turn is over."""
        ready = self._look()
        if self._closed or self._turns.is_over:
            return None
        fit = (one for one in ready if one.group == group or one.is_made)
        return self._best(one for one in fit if not (offline and one.is_live))

    def offers(self, group: Group) -> bool:
        """Return whether ``take`` would return a line."""
        with self._settled():
            return self._offered(group) is not None

    def take(self, group: Group, offline: bool = False) -> Waiting | None:
        """Remove and return the next line, or None; ``offline``: that is not streamed."""
        with self._settled():
            if (one := self._offered(group, offline)) is not None:
                self._remove(one)
            return one

    def _remove(self, one: Waiting) -> None:
        place = self._waiting if one in self._waiting else self._parked
        place.remove(one)

    def drop(self, one: Waiting, error: BaseException) -> None:
        with self._lock:
            if one not in self._waiting and one not in self._parked:
                return
            self._remove(one)
        one.fail(Outcome(error=error))

    # Turns of groups

    def begin(self, group: Group) -> None:
        with self._lock:
            self._turns.begin(group)

    def end(self) -> None:
        with self._lock:
            self._turns.end()
        self.counts.speaking = 0

    def continues(self, group: Group) -> bool:
        """Return whether an empty batch of this group waits for another line: no other group has any."""
        with self._settled():
            return not self._closed and all(one.group == group for one in self._look())

    @property
    def is_asked(self) -> bool:
        """Whether lines that could be spoken have no row."""
        with self._settled():
            return bool(self._look())

    @property
    def turn_left_s(self) -> float | None:
        """Seconds until the batch must be left to another group; None while none waits."""
        with self._settled():
            self._look()
            return self._turns.left_s

    def leave(self) -> None:
        """Make the batch thread call ``close``. Takes no lock: the garbage collector may call it anywhere."""
        self._closed = True
        self.bell.set()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            ended = [*self._parked, *self._waiting]
            self._parked, self._waiting = [], []
        for one in ended:
            one.fail(Outcome(error=BatchClosed("the batch was closed before this line was spoken")))
        self.between.end(BatchClosed("the batch was closed before this was done"))
        self.bell.set()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def _settled(self) -> AbstractContextManager[bool]:
        """End the lines whose readers have left, without the lock, as this calls back; return the lock, to be held."""
        with self._lock:
            left = [one for one in (*self._waiting, *self._parked) if one.speech.is_cancelled]
            for one in left:
                self._remove(one)
        for one in left:
            one.leave()
        return self._lock

    @property
    def status(self) -> BatchStatus:
        with self._lock:
            waiting = sum(one.is_ready for one in self._waiting)
            silent, parked = len(self._waiting) - waiting, len(self._parked)
        now, waiting = self.counts, waiting + self._without_row
        speaking = min(now.speaking, self._rows)
        return BatchStatus(self._rows, speaking, waiting, now.frames, now.frame_s, parked, silent)


@dataclass
class Counts:
    """What the running batch reports; ``frame_s`` is seconds per frame."""

    speaking: int = 0
    frames: int = 0
    frame_s: float = 0.0

    def add_frames(self, frames: int, frame_s: float) -> None:
        self.frames += frames
        self.frame_s = frame_s

"""Decide which utterances get rows: the only queue of a process. It has no torch, no clock and no thread.

    scheduler = Scheduler(rows=[8, 8], waiting=64)
    scheduler.submit([utterance], now)                   # raises Busy
    for utterance in scheduler.next(device, free, now):  # an utterance is in the list once for each of its rows
        ...                                              # decode a piece of it
    scheduler.release(utterance, now)                    # a piece has ended, and its row is free
    scheduler.requeue(utterance, now)                    # what it wants, its deadline or ``is_live`` has changed
    scheduler.remove(utterance)                          # it has ended, wherever it was
    scheduler.groups(device, now)                        # whose rows make the next frame

An utterance is queued while it ``wants`` rows, idle while it wants and has none; it may have rows and be queued for
more. A long text is released and queued again after each piece, so it keeps its row only if nobody needs it more.

Any thread may call ``submit``, ``requeue``, ``remove`` and ``utterances``; a device's own thread calls ``next`` and
``release``. ``now`` is in the seconds of ``Utterance.deadline``, from any one clock. Members of an utterance are read
under the lock: they must neither block nor call back.

1. A lower ``order`` goes first.
2. Streamed utterances go by deadline: the time at which their player runs dry; for a new one, now. Deadlines in one
   START_S are equal, and so are all that have passed. Among equals the caller with the fewest rows goes first, then
   (of the first LOOKS_AT of a caller) the utterance with the least left to say. A tenth of the time since its player
   ran dry is subtracted from that, and BEGUN_S if it already plays. Short lines thus start soon although the device
   cannot keep up with long ones.
3. Offline utterances get the rows that are left: the caller with the fewest rows first, then the earliest submission,
   then the longest. While streams take all rows, offline utterances get every fourth row that becomes free, up to a
   quarter of all rows.
4. A row changes hands within a piece (``yields``). Offline utterances give up what they have beyond their quarter to
   streams whose players run dry in AHEAD_S. A stream gives up its row to one whose player runs dry AHEAD_S sooner, and
   to one whose player is dry and that has LESS_S less to say (LESS_S + BEGUN_S if it is new). So a new line does not
   wait until a long text is ahead.
5. Groups make frames in rounds, the earliest deadline first.
"""

from __future__ import annotations

import math
import threading
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..decode.rows import Group
    from .utterance import Utterance

START_S = 0.5  # deadlines so near to each other are equal
FAR_S = 3600.0  # all that can wait for so long are equal
OFFLINE_SHARE = 4  # one row in so many is for offline lines
AHEAD_S, LESS_S = 2.0, 2.0  # less is not worth a change of rows within a piece
BEGUN_S = 6.0  # so much longer a text goes before a new one once it plays: a late start beats a gap
AGING = 0.1  # of each second that a player is dry
LOOKS_AT = 32  # of a caller's streams, by deadline: the time to look at all of a long queue is the device's
SPREAD_S = 0.2  # for which devices leave new utterances to each other
BROKEN_AFTER = 3  # failed utterances in a row


class Busy(Exception):
    """The queue is full: try again later."""


@dataclass(eq=False, slots=True)
class _Place:
    utterance: Utterance
    number: int
    submission: int
    key: tuple[float, ...] = ()  # in its queue; empty: not queued
    left: float = 0.0  # of a queued stream; less goes first
    is_live: bool = False  # as queued
    wants: int = 0
    rows: int = 0
    has_begun: bool = False

    @property
    def state(self) -> str:
        """Return "running", "queued", "idle", or "silent": idle, not begun."""
        idle = "idle" if self.has_begun else "silent"
        return "running" if self.rows else "queued" if self.utterance.wants else idle

    def rank(self, rows: int, now: float) -> tuple[float, ...]:
        """Return what decides between callers, of which this one has so many rows."""
        order, first, *rest = self.key
        if not self.is_live:
            return (order, rows, first, *rest)
        bucket = (min(first, now + FAR_S) - now) // START_S if first > now else 0.0
        return (order, bucket, rows, self.left, self.number)


class Scheduler:
    """See the module. ``rows``: of each device. ``waiting``: how many utterances may be queued, again how many silent
    (idle and not begun), and again how many idle beyond the rows."""

    def __init__(self, rows: Sequence[int], waiting: float = math.inf):
        self._rows, self._waiting = rows, waiting
        self.lock = threading.RLock()
        self._count, self._submitted_at = 0, -math.inf
        self._failures = [0] * len(rows)  # in a row, of each device
        self._places: dict[int, _Place] = {}  # by ``id``
        # For each caller, sorted by key: what is fair between callers changes with every row.
        self.streams = defaultdict[str, list[_Place]](list)
        self._queues = {True: self.streams, False: defaultdict[str, list[_Place]](list)}
        self._with_rows: dict[int, _Place] = {}
        self._passed = Counter[int]()  # rows that streams got on a device since an offline utterance did
        self.wanted = 0  # rows, by all that are queued
        self._stepped: defaultdict[int, set[Group]] = defaultdict(set)  # in this round

    def submit(self, utterances: Sequence[Utterance], now: float, is_retry: bool = False) -> None:
        """Queue new utterances, all or none, as one submission. Raises Busy beyond the bounds.

        ``is_retry``: they replace others, and go before all; never Busy.
        """
        with self.lock:
            if not is_retry:
                self._check_room(utterances)
                self._submitted_at = now
            submission = 0 if is_retry else self._count
            for one in utterances:
                self._count += 1
                place = _Place(one, -self._count if is_retry else self._count, submission)
                self._places[id(one)] = place
                self._enqueue(place, now)

    def _check_room(self, utterances: Sequence[Utterance]) -> None:
        if self._waiting == math.inf:
            return
        counts, silent = Counter(one.state for one in self._places.values()), sum(not one.wants for one in utterances)
        queued = len(utterances) - silent
        if queued and max(counts["queued"] + queued, counts["idle"] + 1 - sum(self._rows)) > self._waiting:
            raise Busy(f"{self._waiting:.0f} lines wait already: try again later")
        if silent and counts["silent"] + silent > self._waiting:
            raise Busy(f"{self._waiting:.0f} lines wait for their texts already: try again later")

    @property
    def utterances(self) -> list[Utterance]:
        with self.lock:
            return [one.utterance for one in self._places.values()]

    def requeue(self, utterance: Utterance, now: float) -> None:
        """Queue an utterance as it is now, or not if it wants no row; never Busy. One that was removed stays so."""
        with self.lock:
            if (place := self._places.get(id(utterance))) is not None:
                self._dequeue(place)
                self._enqueue(place, now)

    def release(self, utterance: Utterance, now: float) -> None:
        with self.lock:
            if (place := self._places.get(id(utterance))) is not None:
                self._hold(place, place.rows - 1)

    def remove(self, utterance: Utterance) -> None:
        with self.lock:
            if (place := self._places.pop(id(utterance), None)) is not None:
                self._dequeue(place)
                self._hold(place, 0)

    def next(self, device: int, free: int, now: float) -> list[Utterance]:
        """Return the utterances that get the ``free`` rows of a device."""
        admitted: list[Utterance] = []
        with self.lock:
            fresh = self._fresh(device, free, now)
            beside = [one.utterance for one in self._beside(device)]
            while len(admitted) < free and not (beside and beside[-1].is_alone):
                place = self._best(device, now, fresh > 0)
                if place is None or (place.utterance.is_alone and beside):
                    break
                fresh -= place.utterance.device < 0
                self._admit(place, device, now)
                admitted.append(place.utterance)
                beside.append(place.utterance)
        return admitted

    def offers(self, device: int, now: float) -> bool:
        """Return whether ``next`` has an utterance."""
        with self.lock:
            return self._best(device, now, self._fresh(device, 1, now) > 0) is not None

    def note_end(self, devices: Iterable[int], is_failure: bool) -> None:
        """Note how an utterance ended: after BROKEN_AFTER failures a device gets no more while another is sound."""
        with self.lock:
            for device in devices:
                self._failures[device] = self._failures[device] + 1 if is_failure else 0

    def _fresh(self, device: int, free: int, now: float) -> int:
        """Return how many utterances may begin on a device: its share, until the others have had the time."""
        if self._failures[device] >= BROKEN_AFTER > min(self._failures):
            return 0
        if len(self._rows) == 1 or now - self._submitted_at > SPREAD_S:
            return free
        running = [one.utterance.device for one in self._with_rows.values()]
        share = (len(running) + self.wanted) * self._rows[device] / sum(self._rows)
        return min(free, math.ceil(share) - running.count(device))

    def yields(self, device: int, now: float, free: int = 0) -> Utterance | None:
        """Return the running utterance that gives up a row within a piece to another one (rule 4), or None.

        A stream that cannot use its row also gives it up to an offline utterance. While rows are ``free``, only an
        utterance that runs alone asks for another.
        """
        with self.lock:
            beside = self._beside(device)
            if not beside or beside[0].utterance.is_alone:
                return None
            stream = self._first(True, device, now)
            if not free and (offline := self._offline_for(stream, device, now)) is not None:
                return offline
            if not (running := [one.utterance for one in beside if one.is_live]):
                return None
            last = max(running, key=lambda one: (one.order, one.deadline(now)))
            ends = last.deadline(now)
            queued = self._best(device, now) if ends == math.inf else stream
            if queued is None or queued.utterance.order > last.order:
                return None
            if free and not queued.utterance.is_alone:
                return None
            first = max(queued.key[1], now) if queued.is_live else now
            if ends - first > AHEAD_S:
                return last
            if not queued.is_live or first > now:
                return None
            most = max(running, key=lambda one: (one.order, _left(one, one.deadline(now), now)))
            left = _left(queued.utterance, queued.key[1], now)
            least = LESS_S + BEGUN_S * (not queued.has_begun)
            return most if _left(most, most.deadline(now), now) - left > least else None

    def _offline_for(self, stream: _Place | None, device: int, now: float) -> Utterance | None:
        """Return the running offline utterance that gives up a row to the first queued stream, or None."""
        if stream is None or stream.key[1] >= now + AHEAD_S:
            return None
        if self._offline_rows(device) <= self._offline_share(device):
            return None
        offline = [place for place in self._beside(device) if not place.is_live]
        last = max(offline, key=lambda place: (place.utterance.order, place.number)).utterance
        return last if stream.utterance.order <= last.order else None

    def groups(self, device: int, now: float) -> Iterator[Group]:
        """Yield each group with rows once, for the device's next frame: another is asked for if one makes none."""
        ends: dict[Group, float] = {}
        stepped = self._stepped[device]
        with self.lock:
            for place in self._beside(device):
                one = place.utterance
                end = one.deadline(now) if place.is_live else math.inf
                ends[one.group] = min(end, ends.get(one.group, math.inf))
        if stepped >= ends.keys():
            stepped.clear()
        for group in sorted(ends, key=lambda group: (group in stepped, ends[group])):
            stepped.add(group)
            yield group

    def _best(self, device: int, now: float, may_begin: bool = True) -> _Place | None:
        stream = self._first(True, device, now, may_begin)
        offline = self._first(False, device, now, may_begin)
        if stream is None or offline is None:
            return stream or offline
        order = offline.utterance.order - stream.utterance.order
        have_passed = self._passed[device] >= OFFLINE_SHARE - 1
        is_due = have_passed and self._offline_rows(device) < self._offline_share(device)
        # A stream whose reader is full, or whose text has not come, has no use for a row now.
        return offline if order < 0 or (not order and is_due) or stream.key[1] == math.inf else stream

    def _first(self, is_live: bool, device: int, now: float, may_begin: bool = True) -> _Place | None:
        rows = Counter[str]()  # of each caller
        for place in self._with_rows.values():
            rows[place.utterance.caller] += place.rows

        def fits(one: Utterance) -> bool:
            return one.device == device or (one.device < 0 and may_begin and device not in one.failed_on)

        found = list[tuple[tuple[float, ...], _Place]]()
        for caller, queue in self._queues[is_live].items():
            fitting = (one for one in queue if fits(one.utterance))
            found += [(one.rank(rows[caller], now), one) for one in islice(fitting, LOOKS_AT if is_live else 1)]
        return min(found)[1] if found else None

    def _beside(self, device: int) -> list[_Place]:
        return [one for one in self._with_rows.values() if one.utterance.device == device]

    def _offline_rows(self, device: int) -> int:
        return sum([one.rows for one in self._beside(device) if not one.is_live])

    def _offline_share(self, device: int) -> int:
        return max(1, self._rows[device] // OFFLINE_SHARE)

    def _admit(self, place: _Place, device: int, now: float) -> None:
        self._passed[device] = self._passed[device] + bool(self._queues[False]) if place.is_live else 0
        self.wanted -= 1
        place.utterance.device, place.has_begun, place.wants = device, True, place.wants - 1
        if not place.wants:
            self._dequeue(place)
        self._hold(place, place.rows + 1)

    def _hold(self, place: _Place, rows: int) -> None:
        place.rows = rows
        self._with_rows.pop(place.number, None)
        if rows:
            self._with_rows[place.number] = place

    def _enqueue(self, place: _Place, now: float) -> None:
        one = place.utterance
        place.is_live = one.is_live
        # Also a line of several pieces gets one row at a time if it is streamed.
        place.wants = min(one.wants, int(not place.rows)) if place.is_live else one.wants
        if not place.wants:
            return
        if place.is_live:
            place.key = (one.order, one.deadline(now), place.number)
            place.left = one.left_s + AGING * place.key[1] - BEGUN_S * place.has_begun
        else:
            place.key = (one.order, place.submission, -one.length, place.number)
        insort(self._queues[place.is_live][one.caller], place, key=lambda other: other.key)
        self.wanted += place.wants

    def _dequeue(self, place: _Place) -> None:
        if place.key:
            queues, caller = self._queues[place.is_live], place.utterance.caller
            queues[caller].remove(place)
            if not queues[caller]:
                del queues[caller]
            place.key = ()
            self.wanted -= place.wants


def _left(one: Utterance, deadline: float, now: float) -> float:
    return one.left_s - AGING * max(0.0, now - deadline)

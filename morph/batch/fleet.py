"""Share one queue among several devices: each takes the next line when it has room."""

from __future__ import annotations

import hashlib
import logging
import threading
from bisect import insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from ..model.finite import NotFinite
from ..options import GenerateOptions
from ..runtime.bell import Bell
from ..speech.lines import Line, Spoken, say_why
from ..text.duration import likely_frames
from ..words.timing import WordTime
from .batch import Batch, BatchStatus
from .loop import BatchClosed, is_final
from .scheduler import Busy
from .speech import Chunk, Delivery, Outcome, Speech
from .utterance import cancelled

log = logging.getLogger(__name__)

# A quarter of a device's rows may be queued there, so that a free row takes the next line at once. None of the last
# lines: they could not go to another device with a free row.
SPARE = 4
BROKEN_AFTER = 3  # failed lines in a row, after which a device gets no more


@dataclass(eq=False)
class _Device:
    batch: Batch
    name: str
    has: set[_Dispatched] = field(default_factory=set)
    failures: int = 0

    @property
    def lines(self) -> int:
        """Lines that want a row, so not those with a slow reader or in the codec."""
        return sum(not (speech.is_full or speech.is_coded) for speech in self.has)

    def has_room(self, spare: bool, queues: bool) -> bool:
        """Whether it takes another offline line; ``spare``: some more than it has rows.

        ``queues``: up to its waiting limit if it streams: a line that waits in the fleet would never get its turn
        there.
        """
        rows, most = self.batch.rows, self.batch.most_waiting
        beyond = max(1, rows // SPARE) if spare else 0
        streams = queues and any(speech.is_live for speech in self.has)
        return self.lines < rows + (most if streams else min(beyond, most))


class Fleet:
    """The same checkpoint on several devices, as one backend. Any thread may call it.

    ``queues``: for lines that come one by one, a streamed line is queued at the least loaded device at once; an
    offline one too, if that device streams. Otherwise lines wait here until a device has room. ``close`` closes the
    batches. Raises ValueError for no batch, and for checkpoints that differ.
    """

    def __init__(self, batches: Sequence[Batch], queues: bool = False):
        check_alike(batches)
        names = name_devices(batches)
        self._devices = [_Device(batch, name) for batch, name in zip(batches, names, strict=True)]
        self._first, self._queues = batches[0], queues
        self._rows = sum(batch.rows for batch in batches)
        self.name, self.rate, self.languages = self._first.name, self._first.rate, self._first.languages
        self._lock = threading.RLock()
        self._waiting: list[_Dispatched] = []  # by ``place``
        self._count = 0
        self._closed = False
        # Devices limit it while they speak; if they overlap, the last to end would decide for later threads.
        self._threads = torch.get_num_threads()

    def check(self, line: Line, options: GenerateOptions) -> None:
        self._first.check(line, options)

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        """See ``Speaks``. Device kinds round differently: the key covers all of them."""
        keys = {device.batch.key(line, options) for device in self._devices}
        if None in keys or len(keys) == 1:
            return next(iter(keys))
        return hashlib.sha256("".join(sorted(map(str, keys))).encode()).hexdigest()

    def speak(
        self, line: Line, options: GenerateOptions | None = None, delivery: Delivery | None = None
    ) -> Speech:
        """See ``Speaks``. A line that fails on one device before its first chunk is retried on another.

        Raises BatchClosed after ``close``; Busy if too many lines wait (``queues``), here or at the least
        loaded device.
        """
        return self.speak_all([line], options or GenerateOptions(), [delivery or Delivery()])[0]

    def speak_all(
        self, lines: Sequence[Line], options: GenerateOptions, deliveries: Sequence[Delivery]
    ) -> list[Speech]:
        for line in lines:
            self.check(line, options)
        speeches = [
            _Dispatched(self, line, options, delivery)
            for line, delivery in zip(lines, deliveries, strict=True)
        ]
        self._settle()
        with self._lock:
            if self._closed:
                raise BatchClosed("the batch is closed: create another")
            self._check_room(len(speeches))
            for speech in speeches:
                self._put(speech)
        self.give(speeches)
        return list(speeches)

    def _check_room(self, count: int) -> None:
        if not self._queues:
            return
        most = sum(device.batch.most_waiting for device in self._devices)
        if self.status.waiting + count > most:
            raise Busy.of(most)

    def _settle(self) -> None:
        """End lines whose readers have left, without the lock: this calls back. A device ends those of lists."""
        if not self._queues:
            return
        with self._lock:
            left = [speech for speech in self._waiting if speech.is_cancelled]
            self._waiting = [speech for speech in self._waiting if speech not in left]
        for speech in left:
            speech.finish(cancelled(speech.line, self.rate))

    def _put(self, speech: _Dispatched) -> None:
        """Queue a new line. Of a list's offline lines the longest goes first: short ones fill the end."""
        self._count += 1
        length = 0 if speech.is_heard or self._queues else -likely_frames(str(speech.line.text))
        self._queue(speech, (speech.delivery.order, not speech.is_heard, length, self._count))

    def _queue(self, speech: _Dispatched, place: tuple[int, int, int, int]) -> None:
        speech.place = place
        insort(self._waiting, speech, key=lambda other: other.place)

    @property
    def status(self) -> BatchStatus:
        """The sum over all devices; a frame takes as long as on the slowest."""
        each = [device.batch.status for device in self._devices]
        waiting = len(self._waiting) + sum(one.waiting for one in each)
        return BatchStatus(
            sum(one.rows for one in each),
            sum(one.speaking for one in each),
            waiting,
            sum(one.frames for one in each),
            max(one.frame_s for one in each),
            sum(one.parked for one in each),
            sum(one.silent for one in each),
        )

    def check_words(self) -> None:
        self._first.check_words()

    def words(self, spoken: Spoken) -> tuple[WordTime, ...]:
        return self._first.words(spoken)

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        return self._first.describe(spoken, options, elapsed_s)

    def give(self, own: Sequence[_Dispatched] = ()) -> None:
        """Dispatch waiting lines to devices with room; raise Busy if one of ``own`` is refused."""
        self._settle()
        given: dict[str, tuple[_Device, list[_Dispatched]]] = {}
        while (found := self._next()) is not None:
            device, speech = found
            given.setdefault(device.name, (device, []))[1].append(speech)
        for device, speeches in given.values():
            try:
                device.batch.take(*speeches)  # together, so that the batch has rows for all
            except Busy as error:
                refused = [speech for speech in speeches if speech in own]
                self._take_back(device, [speech for speech in speeches if speech not in refused])
                for speech in refused:
                    speech.fail(error)
                if refused:
                    raise
            except Exception as error:
                for speech in speeches:
                    speech.fail(error)

    def _take_back(self, device: _Device, speeches: Sequence[_Dispatched]) -> None:
        with self._lock:
            for speech in speeches:
                device.has.discard(speech)
                speech.tried.remove(device)
                self._queue(speech, speech.place)

    def _next(self) -> tuple[_Device, _Dispatched] | None:
        with self._lock:
            if not self._waiting:  # called twice for each line that ends: saves the devices' counts
                return None
            spare = len(self._devices) == 1 or len(self._waiting) > self._rows
            free = [device for device in self._devices if device.has_room(spare, self._queues)]
            for speech in self._waiting if free or self._queues else ():
                at_once = self._queues and speech.is_live
                able = [device for device in self._able(speech) if at_once or device in free]
                if able:
                    self._waiting.remove(speech)
                    device = min(able, key=lambda device: device.lines / device.batch.rows)
                    device.has.add(speech)
                    speech.tried.append(device)
                    return device, speech
        return None

    def _able(self, speech: _Dispatched) -> list[_Device]:
        left = [device for device in self._devices if device not in speech.tried]
        sound = [device for device in left if device.failures < BROKEN_AFTER]
        return sound or left

    def end(self, speech: _Dispatched, outcome: Outcome) -> Outcome | None:
        """Note how a line ended on its device; return its outcome, or None if another device retries it."""
        error = outcome.error
        with self._lock:
            device = speech.tried[-1] if speech.tried else None
            if device is not None:
                device.has.discard(speech)
                device.failures = device.failures + 1 if _is_failure(error) else 0
            again = _is_failure(error) and not (self._closed or speech.has_begun or speech.is_cancelled)
            again = again and isinstance(speech.line.text, str)  # an iterator has been read already
            if again and self._able(speech):
                log.warning("a line could not be made on %s (%s)", device and device.name, error)
                speech.errors.append(say_why(error) if error else "")
                self._queue(speech, (speech.delivery.order, 0, 0, 0))
                return None
            if again:  # no device can make it: the line is at fault
                for one in speech.tried:
                    one.failures = 0
        if outcome.spoken is None or len(self._devices) == 1 or not speech.tried:
            return outcome
        spoken = self._signed(speech, outcome.spoken)
        return replace(outcome, spoken=spoken, report=spoken.report)

    def _signed(self, speech: _Dispatched, spoken: Spoken) -> Spoken:
        report, notes = spoken.report, spoken.report.notes
        name = speech.tried[-1].name
        if speech.errors:
            where = " and ".join(device.name for device in speech.tried[:-1])
            notes = (*notes, f"A line could not be made on {where} ({speech.errors[-1]}): {name} made it.")
        return replace(spoken, report=replace(report, device=name, notes=notes))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, []
        for speech in waiting:
            speech.fail(BatchClosed("the batch was closed before this line was spoken"))
        for device in self._devices:
            device.batch.close()
        torch.set_num_threads(self._threads)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Dispatched(Speech):
    def __init__(self, fleet: Fleet, line: Line, options: GenerateOptions, delivery: Delivery):
        super().__init__(line, options, delivery, Bell())
        self._fleet = fleet
        self.place = (0, 0, 0, 0)  # in the fleet's queue
        self.tried: list[_Device] = []
        self.errors: list[str] = []

    def put(self, chunk: Chunk) -> None:
        super().put(chunk)
        if self.is_full:
            self._fleet.give()

    def hear(self) -> None:
        super().hear()
        self._fleet.give()

    def note_coded(self, is_coded: bool) -> None:
        super().note_coded(is_coded)
        if is_coded:
            self._fleet.give()

    def finish(self, outcome: Outcome) -> None:
        if self.ended:
            return
        ended = self._fleet.end(self, outcome)
        if ended is not None:
            super().finish(ended)
        self._fleet.give()


def _is_failure(error: BaseException | None) -> bool:
    if error is None or isinstance(error, (BatchClosed, Busy)) or is_final(error):
        return False
    return isinstance(error, NotFinite) or not isinstance(error, ValueError)


def name_devices(batches: Sequence[Batch]) -> list[str]:
    """Return the name of each batch's device: "cuda:0"; a second batch on it is "cuda:0 (2)"."""
    seen: Counter[str] = Counter()
    names = []
    for batch in batches:
        name = str(batch.synthesizer.model.device)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def check_alike(batches: Sequence[Batch]) -> None:
    """Raise ValueError if a line would not be the same on every device."""
    if not batches:
        raise ValueError("there is no model to speak with")
    names, first = name_devices(batches), _nature(batches[0])
    for batch, name in zip(batches[1:], names[1:], strict=True):
        for what, value in _nature(batch).items():
            if value != first[what]:
                raise ValueError(
                    f"the models on {names[0]} and {name} cannot share lines: {what} is {first[what]} and {value}. "
                    "Load both with the same settings, and set precision and engine explicitly instead of auto"
                )


def _nature(batch: Batch) -> dict[str, str]:
    model = batch.synthesizer.model
    choice = batch.synthesizer.engine.choose(model)
    return {
        "checkpoint": model.name,
        "the content of the checkpoint": model.fingerprint,
        "precision": str(model.dtype).removeprefix("torch."),
        "weights": model.weights,
        "attention": model.attention,
        "engine": choice.engine,
        "codec": "many lines" if choice.batch_codec else "one line",
    }

"""Between callers and a backend: a queued line with its chunks and result, and the messages to the batch's thread."""

from __future__ import annotations

import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import torch

from ..options import GenerateOptions
from ..runtime.threads import Waker, WakeUpEvent
from ..speech.lines import Line, LineReport, Spoken
from ..words.alignment import Trace
from ..words.timing import WordTime

log = logging.getLogger(__name__)

QUEUED_FRAMES = 50  # of a line: 4 s. Beyond them codes wait until the reader takes a chunk
LATER: Literal["later"] = "later"


class OutOfService(Exception):
    """The backend is gone, such as a server that ended: all its unfinished lines fail."""


class BatchClosed(Exception):
    """The batch is closed."""


@dataclass(frozen=True, eq=False)
class ChunkTrace:
    """Which text token each frame of a chunk is on; the frames are of one piece."""

    numbers: np.ndarray  # what engines reported of its frames (``words/alignment.py``)
    piece: int  # index in the line
    # Index of the piece's first sample in the line's waveform; it may lie in trimmed silence or in a crossfade.
    begin: int
    text: str  # of the piece, as spoken; of late text, what has come so far

    @property
    def trace(self) -> Trace:
        """The numbers as a trace, made on demand: few readers need it."""
        trace = Trace.from_numbers(self.numbers)
        assert trace is not None
        return trace


@dataclass(frozen=True, eq=False)
class Chunk:
    """Final samples of one line, and the frames that were decoded for them."""

    codes: torch.Tensor  # int64 ``[n, 16]``; n may be 0 at the end of a piece
    # float32, 1,920 per frame; other counts if a crossfade between pieces holds samples back or overlaps them.
    samples: np.ndarray
    start: int  # index of the first sample in the line's waveform
    last: bool  # the line ends with this chunk, which may be empty
    line: int = 0  # its index, if several are read together
    words: ChunkTrace | None = None  # None without frames, and if the checkpoint does not report it


@dataclass(frozen=True)
class Delivery:
    """How a line reaches its reader."""

    # Streamed, chunk by chunk. If not, it is rendered offline, which needs less of the device, and all audio comes at
    # the end. LATER: offline until ``Speech.stream`` is called, which a server must know when the line is sent.
    live: bool | Literal["later"] = True
    order: int = 0  # lines of a lower order get rows first; see ``scheduler.py``
    # Whether ``Speech.result`` is wanted. If not, nothing is kept after the chunks, and a batch retries no piece of a
    # streamed line. An offline line's one chunk is its audio.
    keep: bool = True
    # Called after each chunk and at the end, in the batch's thread or in one that queues another line: do not block in
    # it. If it raises, this line ends with the error, and no other.
    on_change: Callable[[], None] | None = None
    # Seconds of audio held back on the way to the listener, as by an encoder: chunks are decoded that much sooner.
    held_s: float = 0.0
    last_retry_s: float = math.inf  # when the last retry may begin, by ``time.perf_counter``
    # An API key, an address or a graph: of lines that are equally urgent, the one whose caller has the fewest rows goes
    # first.
    caller: str = ""


@dataclass(frozen=True)
class Outcome:
    # None if it failed before there was anything to say; without samples if it was streamed and not kept
    spoken: Spoken | None = None
    error: BaseException | None = None
    text_tokens: int = 0


@dataclass
class Progress:
    """How many frames of a line are decoded and expected. ``pieces``: of its text, roughly while it is cut."""

    expected: int = 0
    pieces: int = 0
    ended: int = 0  # frames of pieces that have ended
    running: Sequence[Sized] = ()  # the frames of the others
    chunks: int = 0  # delivered, read or not

    @property
    def done(self) -> int:
        """The frames so far; any thread may ask."""
        return self.ended + sum(map(len, self.running))


class Speech:
    """A queued line: an iterator over its chunks, for one reader. Any thread may hold it.

    ``wake_up`` is set when the reader has taken a chunk, left, or asked to stream.
    """

    def __init__(self, line: Line, options: GenerateOptions, delivery: Delivery, wake_up: Waker):
        self.line, self.options, self.wake_up = line, options, wake_up
        # Without the callback: a reader refers to this, and the cycle would need the garbage collector.
        self.delivery = replace(delivery, on_change=None)
        # Whether streaming is wanted; a text that comes in parts is always streamed.
        self.is_streamed = delivery.live is True or not isinstance(line.text, str)
        self.is_cancelled = False  # whether its reader has left
        self.progress = Progress()
        self._changed = threading.Condition()
        self._chunks: deque[Chunk] = deque()
        self.queued = 0  # frames of unread chunks
        self.outcome: Outcome | None = None  # None until it has ended
        self._on_change = delivery.on_change

    # The reader's side

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        if (chunk := self.take()) is None:
            raise StopIteration
        return chunk

    @property
    def unread(self) -> int:
        """The chunks that ``take`` returns without waiting."""
        return len(self._chunks)

    @property
    def is_full(self) -> bool:
        """Whether its unread chunks are enough for now."""
        return self.queued >= QUEUED_FRAMES

    @property
    def ended(self) -> bool:
        """Whether ``result`` returns, or raises, at once."""
        return self.outcome is not None

    def take(self) -> Chunk | None:
        """Wait for the next chunk; None after the last and after ``cancel``. Raises the line's error."""
        with self._changed:
            self._changed.wait_for(lambda: self._chunks or self.outcome or self.is_cancelled)
            if not self._chunks:
                self.check()
                return None
            chunk, was_full = self._chunks.popleft(), self.is_full
            self.queued -= len(chunk.codes)
            if was_full and not self.is_full:  # its codes wait until then
                self.wake_up.set()
            return chunk

    def stream(self) -> None:
        """Stream the line from now on; too late if its samples are being decoded."""
        self.is_streamed = True
        self.wake_up.set()

    def cancel(self) -> None:
        """Leave: queued chunks are dropped, and the row is free within a frame. Does not wait."""
        with self._changed:
            self.is_cancelled = True
            self._chunks.clear()
            self.queued = 0
            self._changed.notify_all()
        self.wake_up.set()

    close = cancel  # for ``contextlib.closing``

    def result(self) -> Spoken:
        """Wait for the line's end and return its best take; the chunks may be of the first one.

        Unread chunks are dropped. A cancelled line has the part that was spoken. Raises the error that ended the line,
        and RuntimeError without ``Delivery.keep``.
        """
        while not self.ended and not self.is_cancelled and self.take() is not None:
            pass
        with self._changed:
            self._changed.wait_for(lambda: self.outcome is not None)
        if self._spoken is None or not self.delivery.keep:
            raise RuntimeError("the line was not kept: speak it with Delivery(keep=True)")
        return self._spoken

    def check(self) -> None:
        if self.outcome is not None and self.outcome.error is not None:
            raise self.outcome.error

    @property
    def report(self) -> LineReport:
        """How the line went, as far as it went. Raises its error, or RuntimeError if it has not ended."""
        if self._spoken is None:
            raise RuntimeError("the line has not ended: read its chunks first")
        return self._spoken.report

    @property
    def _spoken(self) -> Spoken | None:
        self.check()
        return None if self.outcome is None else self.outcome.spoken

    # The backend's side

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk; never waits."""
        with self._changed:
            if self.is_cancelled:
                return
            self._chunks.append(chunk)
            self.queued += len(chunk.codes)
            self.progress.chunks += 1
            self._changed.notify_all()
        if self._on_change is not None:
            self._tell(self._on_change)

    def finish(self, outcome: Outcome) -> None:
        with self._changed:
            if self.outcome is not None:
                return
            self.outcome = outcome
            self._changed.notify_all()
        on_change, self._on_change = self._on_change, None
        if on_change is not None:
            self._tell(on_change)

    def _tell(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change``; if it raises, this line alone ends with the error."""
        try:
            on_change()
        except Exception as error:
            log.warning("on_change of the line %.40r raised: the line is ended", self.line.text, exc_info=error)
            self._on_change = None
            self.cancel()
            self.finish(Outcome(error=error))


class Inbox(WakeUpEvent):
    """The messages to a batch's thread: utterances that have changed, other model work, and the end.

    Any thread posts, without a lock: even the garbage collector. One thread reads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changed = deque[Any]()  # weak references to utterances
        self.work = deque[tuple[Future[Any], Callable[[], Any]]]()
        self.is_closed = False

    def post(self, changed: Any) -> None:
        self.changed.append(changed)
        self.set()

    def close(self) -> None:
        self.is_closed = True
        self.set()

    def check_open(self) -> None:
        if self.is_closed:
            raise BatchClosed("the batch was closed while it spoke this line")

    def ask(self, work: Callable[[], Any]) -> Future[Any]:
        """Queue model work. Cancel the future to withdraw work that has not begun."""
        future = Future[Any]()
        self.work.append((future, work))
        self.set()
        return future

    def do_work(self) -> bool:
        """Run one piece of work, so that lines come before the next; return whether there was one."""
        while self.work:
            future, work = self.work.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except Exception as error:  # the caller gets it, and lines go on
                future.set_exception(error)
            return True
        return False

    def refuse_work(self, error: Exception) -> None:
        while self.work:
            future, _ = self.work.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(error)


class Signal:
    """Posts that the utterance of a line has changed: to its device, or to all while it has none.

    Its weak reference makes no cycle with what holds the signal.
    """

    def __init__(self, inboxes: Sequence[Inbox]):
        self._inboxes = inboxes

    def attach(self, utterance: Any) -> None:
        """Post this utterance from now on."""
        self._utterance = weakref.ref(utterance)

    def set(self) -> None:
        if (one := self._utterance()) is None:
            return
        for inbox in self._inboxes if one.device < 0 else [self._inboxes[one.device]]:
            inbox.post(self._utterance)


class Checks(Protocol):
    """Knows which lines can be spoken."""

    @property
    def languages(self) -> Sequence[str]:
        """The languages that a line may have."""

    def check(self, line: Line, options: GenerateOptions) -> None:
        """Raise ValueError for a line that cannot be spoken, before any work."""


class Speaks(Checks, Protocol):
    """A speech backend. Any thread may call it."""

    @property
    def name(self) -> str:
        """The checkpoint's name, with its adapters."""

    @property
    def rate(self) -> int:
        """The sample rate in Hz."""

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        """Return a hash of everything that decides the line's audio, 64 hexadecimal digits; None: not cacheable."""

    def speak(self, line: Line, options: GenerateOptions, delivery: Delivery | None = None) -> Speech:
        """Queue a line; ValueError as ``check``. The default delivery streams and keeps it, in call order."""

    def speak_all(
        self, lines: Sequence[Line], options: GenerateOptions, deliveries: Sequence[Delivery]
    ) -> list[Speech]:
        """Queue several lines, as ``speak``. Lines that are given rows start in the same frame."""

    def check_words(self) -> None:
        """Raise ValueError if it knows no word times."""

    def words(self, spoken: Spoken) -> tuple[WordTime, ...]:
        """Return a line's word times in its waveform at any speed, or () if unknown; ValueError as ``check_words``."""

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        """Return a report of lines for people; ``elapsed_s`` is the wall-clock time of all."""


class ByVoice:
    """Routes each line to the backend of its voice (``Voice.by``), or to ``main``; see ``Speaks``.

    ``others`` have the same checkpoint with other adapters, so languages and words are alike. Lines of
    different models cannot share a batch: models that share weights take turns.
    """

    def __init__(self, main: Speaks, others: Mapping[Any, Speaks]):
        self._main, self._others = main, others
        self.name, self.rate, self.languages = main.name, main.rate, main.languages

    def _of(self, line: Line) -> Speaks:
        return self._others.get(line.voice.by, self._main)

    def check(self, line: Line, options: GenerateOptions) -> None:
        self._of(line).check(line, options)

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        return self._of(line).key(line, options)

    def speak(self, line: Line, options: GenerateOptions, delivery: Delivery | None = None) -> Speech:
        return self._of(line).speak(line, options, delivery)

    def speak_all(
        self, lines: Sequence[Line], options: GenerateOptions, deliveries: Sequence[Delivery]
    ) -> list[Speech]:
        speeches: dict[int, Speech] = {}
        for speaks in dict.fromkeys(map(self._of, lines)):
            own = [index for index, line in enumerate(lines) if self._of(line) is speaks]
            made = speaks.speak_all([lines[one] for one in own], options, [deliveries[one] for one in own])
            speeches.update(zip(own, made, strict=True))
        return [speeches[index] for index in range(len(lines))]

    def check_words(self) -> None:
        self._main.check_words()

    def words(self, spoken: Spoken) -> tuple[WordTime, ...]:
        return self._main.words(spoken)

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        """See ``Speaks``; the report ends with the names of the other models."""
        names = ", ".join(dict.fromkeys(one.name for one in self._others.values()))
        return f"{self._main.describe(spoken, options, elapsed_s)}\n- characters with models of their own: {names}"

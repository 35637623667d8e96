"""Speak lines in a continuous batch, on one device or several: lines join and leave between frames.

    with Batch(synthesizer, rows=8) as batch:
        for chunk in batch.speak(Line("Hello there.", voice)):
            player.write(chunk.samples)

One thread owns the model (``loop.py``). Lines that make a frame together share SEQ_GROUPS and tail, and other groups
alternate with them; each line has its own sampling. With a seed, a line has the same codes in any batch, up to the
rounding of another batch size. If the engine fails, lines that have delivered nothing are retried once, each alone.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import torch

from ..decode.rows import NOTHING_AHEAD, Ahead
from ..graph.pool import most_rows
from ..options import AUTO_ROWS, MOST_LINES, GenerateOptions
from ..runtime.threads import check_process
from ..speech.lines import Line, Spoken, check_followed, check_line
from ..speech.report import describe
from ..speech.takes import check_word_times, word_times
from ..synthesizer import Synthesizer
from ..words.timing import WordTime
from .key import common_key, line_key
from .loop import LINGER_S, Loop
from .scheduler import Scheduler
from .speech import Delivery, Speech
from .utterance import Status

ROWS = 8
WAITING = 64
Result = TypeVar("Result")
B = TypeVar("B", bound="Backend")


@dataclass(frozen=True)
class BatchStatus:
    """The load of a batch, in lines."""

    rows: int
    speaking: int
    waiting: int  # could be spoken, but have no row
    frames: int  # of all lines, since the batch was created
    frame_s: float  # seconds per frame, 0 if unknown
    parked: int = 0  # started, without a row: for a slow reader, or text
    silent: int = 0  # not begun: none of their text can be spoken yet


class Backend:
    """A batch or a fleet: speaks lines with one model, on the devices of ``loops``."""

    def __init__(self, synthesizer: Synthesizer, loops: Sequence[Loop], rows: int):
        self.synthesizer, self._loops, self.rows = synthesizer, loops, rows
        self._model, self._process = synthesizer.model, os.getpid()
        self.name, self.rate, self.languages = self._model.title, self._model.sample_rate, self._model.languages

    def check(self, line: Line, options: GenerateOptions) -> None:
        check_line(self._model, line)
        check_followed(self._model, options)

    def speak(self, line: Line, options: GenerateOptions | None = None, delivery: Delivery | None = None) -> Speech:
        """See ``Speaks``. The text may be an iterator of strings (see ``Line``); ``batch_size`` is not used.

        Raises Busy if too many lines are queued; BatchClosed after ``close``; RuntimeError in a forked process.
        """
        return self.speak_all([line], options or GenerateOptions(), [delivery or Delivery()])[0]

    def speak_all(
        self, lines: Sequence[Line], options: GenerateOptions, deliveries: Sequence[Delivery]
    ) -> list[Speech]:
        check_process(self._process, "the batch")
        for line in lines:
            self.check(line, options)
        return self._loops[0].submit(lines, options, deliveries, is_anywhere=len(self._loops) > 1)

    def check_words(self) -> None:
        check_word_times(self._model)

    def words(self, spoken: Spoken) -> tuple[WordTime, ...]:
        return word_times(self._model, spoken)

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        return describe(self._model, spoken, options, elapsed_s)

    @property
    def status(self) -> BatchStatus:
        """The sum over all devices; a frame takes as long as on the slowest."""
        loops, utterances = self._loops, self._loops[0].scheduler.utterances
        counts = Counter(one.status for one in utterances)
        parked = sum(one.status is Status.IDLE and one.take > 0 for one in utterances)
        return BatchStatus(
            self.rows,
            min(self.rows, counts[Status.RUNNING] + counts[Status.DRAINING]),
            counts[Status.QUEUED],
            sum(one.frames for one in loops),
            max(one.speed.frame_s for one in loops),
            parked,
            counts[Status.IDLE] - parked,
        )

    def close(self) -> None:
        """End all lines."""

    def __enter__(self: B) -> B:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Batch(Backend):
    """A continuous batch on one device, for any number of callers. Any thread may call it.

    ``rows``: 1 to 512, or ``AUTO_ROWS`` for as many as memory allows. ``waiting`` limits the queued lines, again
    those whose text has not come, and again started lines without a row; None: no limit.
    """

    def __init__(
        self,
        synthesizer: Synthesizer,
        rows: int = ROWS,
        waiting: int | None = None,
        linger_s: float | None = LINGER_S,
        ahead: Ahead = NOTHING_AHEAD,
    ):
        if not (rows == AUTO_ROWS or 1 <= rows <= MOST_LINES) or (waiting is not None and waiting < 1):
            raise ValueError(
                f"rows is {rows} and waiting is {waiting}: choose 1 to {MOST_LINES} rows, and 1 or more that wait"
            )
        rows = rows or most_rows(synthesizer.model)
        self.most_waiting, self.ahead = math.inf if waiting is None else waiting, ahead
        self.loop = Loop(synthesizer, Scheduler([rows], self.most_waiting), rows, linger_s, ahead)
        super().__init__(synthesizer, [self.loop], rows)
        synthesizer.engine.exclusive().check()
        # It must not raise: only ``threading.excepthook`` would report it.
        self._thread = threading.Thread(target=self.loop.run, name="speech batch", daemon=True)
        self._thread.start()
        # For a batch that is dropped. The garbage collector may run in this thread, or in one that it needs.
        weakref.finalize(self, self.loop.inbox.close).atexit = False
        # At exit a thread that is still in torch would abort the program.
        weakref.finalize(self._thread, _end, weakref.ref(self.loop), weakref.ref(self._thread), self._process)

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        """See ``Speaks``; None for a model that was not loaded from files."""
        common = common_key(self.synthesizer, options)
        return line_key(common, line) if common else None

    def between_lines(self, work: Callable[[], Result]) -> Future[Result]:
        """Run other work with the model once no line is spoken; new lines wait meanwhile.

        ``work`` runs in the batch's thread, which holds the model. If lines never pause, it never runs:
        cancel the future to withdraw it. The future gets BatchClosed if the batch closes first.
        """
        check_process(self._process, "the batch")
        asked = self.loop.inbox.ask(work)
        if self.loop.inbox.is_closed:
            self.loop.end()
        return asked

    def close(self) -> None:
        if self._process == os.getpid():
            _stop(self.loop, self._thread)


def _stop(loop: Loop, thread: threading.Thread) -> None:
    """End all lines and join the thread, unless it still waits for the model, which the caller may hold."""
    loop.inbox.close()
    if loop.waits_for_model or thread is threading.current_thread():
        loop.end()
    else:
        thread.join()


def _end(loop: weakref.ref[Loop], thread: weakref.ref[threading.Thread], process: int) -> None:
    # Weak references: a loop has the model, which could not be freed.
    if (running := loop()) is not None and (own := thread()) is not None and process == os.getpid():
        _stop(running, own)


class Fleet(Backend):
    """The same checkpoint on several devices, as one backend. Any thread may call it.

    They share one scheduler: each takes the next line when it has a free row. ``close`` closes the batches. Raises
    ValueError for no batch, and for checkpoints that differ.
    """

    def __init__(self, batches: Sequence[Batch]):
        check_alike(batches)
        self._batches, rows = batches, [batch.rows for batch in batches]
        super().__init__(batches[0].synthesizer, [batch.loop for batch in batches], sum(rows))
        if len(batches) > 1:
            scheduler = Scheduler(rows, sum(batch.most_waiting for batch in batches))
            inboxes, names = [loop.inbox for loop in self._loops], name_devices(batches)
            for device, loop in enumerate(self._loops):
                loop.join(scheduler, inboxes, names, device)
        # Devices limit it while they speak; if they overlap, the last to end would decide for later threads.
        self._threads = torch.get_num_threads()

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        """See ``Speaks``. Device kinds round differently: the key covers all of them."""
        keys = {batch.key(line, options) for batch in self._batches}
        if None in keys or len(keys) == 1:
            return next(iter(keys))
        return hashlib.sha256("".join(sorted(map(str, keys))).encode()).hexdigest()

    def close(self) -> None:
        for loop in self._loops:
            loop.inbox.close()
        for batch in self._batches:
            batch.close()
        torch.set_num_threads(self._threads)


def name_devices(batches: Sequence[Batch]) -> list[str]:
    """Return the name of each batch's device: "cuda:0"; a second batch on it is "cuda:0 (2)"."""
    names = [str(batch.synthesizer.model.device) for batch in batches]
    before = [names[:number].count(name) for number, name in enumerate(names)]
    return [f"{name} ({count + 1})" if count else name for name, count in zip(names, before, strict=True)]


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

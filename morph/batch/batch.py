"""Speak lines on one device in one continuous batch: lines join and leave between frames.

    with Batch(synthesizer, rows=8) as batch:
        for chunk in batch.speak(Line("Hello there.", voice)):
            player.write(chunk.samples)

One thread owns the model (``loop.py``). Lines that make a frame together share SEQ_GROUPS and tail, and other groups
alternate with them; each line has its own sampling. With a seed, a line has the same codes in any batch, up to the
rounding of another batch size. If the engine fails, lines that have delivered nothing are retried once, each alone.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TypeVar

from ..decode.rows import NOTHING_AHEAD, Ahead
from ..options import AUTO_ROWS, MOST_LINES, GenerateOptions
from ..runtime.bell import Bell
from ..runtime.exclusive import check_process
from ..runtime.kept_threads import Job
from ..speech.lines import Line, Spoken, check_line
from ..speech.report import describe
from ..speech.word_times import check_word_times, word_times
from ..speech.wrong_words import check_followed
from ..synthesizer import Synthesizer
from ..words.timing import WordTime
from .fitting import most_rows
from .inbox import Inbox
from .key import common_key, line_key
from .loop import LINGER_S, BatchClosed, Loop, Settings
from .scheduler import Busy, Scheduler
from .speech import Delivery, Speech
from .utterance import Status, Utterance

ROWS = 8
WAITING = 64
Result = TypeVar("Result")


@dataclass(frozen=True)
class BatchStatus:
    """What a batch does now, in lines."""

    rows: int
    speaking: int
    waiting: int  # could be spoken, but have no row
    frames: int  # of all lines, since the batch was created
    frame_s: float  # seconds per frame, 0 if unknown
    parked: int = 0  # started, without a row: for a slow reader, or text
    silent: int = 0  # not begun: none of their text can be spoken yet


class SynthesizerChecks:
    """The ``Checks`` of a synthesizer: which lines it can speak."""

    def __init__(self, synthesizer: Synthesizer):
        self._model, self.languages = synthesizer.model, synthesizer.model.languages

    def check(self, line: Line, options: GenerateOptions) -> None:
        check_line(self._model, line)
        check_followed(self._model, options)


class Batch:
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
        self.synthesizer, self.rows = synthesizer, rows or most_rows(synthesizer.model)
        self._checks = SynthesizerChecks(synthesizer)
        self.name, self.languages = synthesizer.model.title, self._checks.languages
        self.rate = synthesizer.model.sample_rate
        self.most_waiting = math.inf if waiting is None else waiting
        self.ahead = ahead
        self._scheduler = Scheduler[Utterance]([self.rows], self.most_waiting)
        self._inbox, self._numbers = Inbox(), count(1)
        self._loop = Loop(synthesizer, self._scheduler, self._inbox, Settings(self.rows, linger_s, ahead))
        self._process = os.getpid()
        self._job = synthesizer.engine.threads.start(self._loop.run)
        # For a batch that is dropped. The garbage collector may run in this thread, or in one that it needs.
        weakref.finalize(self, self._inbox.close).atexit = False
        # At exit a thread that is still in torch would abort the program.
        weakref.finalize(self._job, _end, self._loop, self._inbox, weakref.ref(self._job))

    def check(self, line: Line, options: GenerateOptions) -> None:
        self._checks.check(line, options)

    def key(self, line: Line, options: GenerateOptions) -> str | None:
        """See ``Speaks``; None for a model that was not loaded from files."""
        if not self.synthesizer.model.fingerprint:
            return None
        return line_key(common_key(self.synthesizer, options), line)

    def speak(
        self, line: Line, options: GenerateOptions | None = None, delivery: Delivery | None = None
    ) -> Speech:
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
        speeches = [
            Speech(line, options, delivery, Bell()) for line, delivery in zip(lines, deliveries, strict=True)
        ]
        self.take(*speeches)
        return speeches

    def take(self, *speeches: Speech) -> None:
        """Queue checked lines; lines admitted together start together. Raises the errors of ``speak``."""
        if self._inbox.is_closed:
            raise BatchClosed("the batch is closed: create another")
        utterances = [Utterance(next(self._numbers), one, self.rate, self._inbox) for one in speeches]
        try:
            self._scheduler.submit(utterances, time.perf_counter())
        except Busy:
            self._forget_cancelled()
            self._scheduler.submit(utterances, time.perf_counter())
        for one in utterances:
            # After ``submit``: the text of a refused line stays unread.
            one.read()
            one.signal.set()
        if self._inbox.is_closed:  # meanwhile: nothing may look at them any more
            self._loop.end()

    def _forget_cancelled(self) -> None:
        """Make room in the queue; the loop ends these lines."""
        for one in self._scheduler.utterances:
            if one.speech.is_cancelled and not one.rows:
                self._scheduler.remove(one)
                self._inbox.post(partial(Utterance.itself, one))  # nothing else refers to it

    def between_lines(self, work: Callable[[], Result]) -> Future[Result]:
        """Run other work with the model once no line is spoken; new lines wait meanwhile.

        ``work`` runs in the batch's thread, which holds the model. If lines never pause, it never runs:
        cancel the future to withdraw it. The future gets BatchClosed if the batch closes first.
        """
        check_process(self._process, "the batch")
        asked = self._inbox.ask(work)
        if self._inbox.is_closed:
            self._loop.end()
        return asked

    def check_words(self) -> None:
        check_word_times(self.synthesizer.model)

    def words(self, spoken: Spoken) -> tuple[WordTime, ...]:
        return word_times(self.synthesizer.model, spoken)

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        return describe(self.synthesizer.model, spoken, options, elapsed_s)

    @property
    def status(self) -> BatchStatus:
        each, loop = self._scheduler.utterances, self._loop
        counts = Counter(one.status for one in each)
        parked = [one for one in each if one.status is Status.IDLE and one.is_open]
        return BatchStatus(
            self.rows,
            min(self.rows, counts[Status.RUNNING] + counts[Status.DRAINING]),
            counts[Status.QUEUED],
            loop.frames,
            loop.frame_s,
            len(parked),
            counts[Status.IDLE] - len(parked),
        )

    def close(self) -> None:
        if self._job.is_here:
            _stop(self._loop, self._inbox, self._job)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stop(loop: Loop, inbox: Inbox, job: Job) -> None:
    """End all lines and join the thread, unless it still waits for the model, which the caller may hold."""
    inbox.close()
    if loop.has_model and not job.is_current:
        job.join()
    else:
        loop.end()


def _end(loop: Loop, inbox: Inbox, job: weakref.ref[Job]) -> None:
    if (running := job()) is not None and running.is_here:
        _stop(loop, inbox, running)

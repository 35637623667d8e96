"""Speak lines on one device in one continuous batch: lines join and leave between frames.

    with Batch(synthesizer, rows=8) as batch:
        for chunk in batch.speak(Line("Hello there.", voice)):
            player.write(chunk.samples)

One thread owns the model. Lines that run together share SEQ_GROUPS and tail; each has its own sampling. Other lines
form other groups, which take turns (``turns.py``). With a seed, a line has the same codes in any batch, up to the
rounding of another batch size. If the engine fails, lines that have delivered nothing are retried once, each alone.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch

from ..decode.rows import NOTHING_AHEAD, Ahead
from ..options import AUTO_ROWS, MOST_LINES, GenerateOptions
from ..runtime.collector import older_objects_spared
from ..runtime.exclusive import check_process
from ..runtime.kept_threads import Job
from ..speech.lines import Line, Spoken, check_line
from ..speech.report import describe
from ..speech.word_times import check_word_times, word_times
from ..speech.wrong_words import check_followed
from ..synthesizer import Synthesizer
from ..words.timing import WordTime
from .fitting import most_rows
from .key import common_key, line_key
from .line_state import LineState
from .queue import BatchClosed, BatchStatus, Queue, Waiting, group_of
from .running import LINGER_S, Running, Settings
from .speech import Delivery, Speech

log = logging.getLogger(__name__)

ROWS = 8
WAITING = 64
Result = TypeVar("Result")


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
        self.most_waiting = 1 << 40 if waiting is None else waiting
        self._queue = Queue(self.rows, self.most_waiting)
        self.ahead = ahead
        self._process = os.getpid()
        serve = partial(_serve, synthesizer, self._queue, Settings(self.rows, linger_s, ahead))
        self._job = synthesizer.engine.threads.start(serve)
        # For a batch that is dropped. The garbage collector may run in this thread, or in one that it needs.
        weakref.finalize(self, self._queue.leave).atexit = False
        # At exit a thread that is still in torch would abort the program.
        weakref.finalize(self._job, _end, self._queue, weakref.ref(self._job))

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
            Speech(line, options, delivery, self._queue.bell)
            for line, delivery in zip(lines, deliveries, strict=True)
        ]
        self.take(*speeches)
        return speeches

    def take(self, *speeches: Speech) -> None:
        """Queue checked lines; lines admitted together start together. Raises the errors of ``speak``."""
        lines = []
        for speech in speeches:
            speech.bell = self._queue.bell
            lines.append(Waiting(speech, group_of(speech.options), self.rate))
        self._queue.put(*lines)
        for one in lines:
            # After ``put``: the text of a refused line stays unread.
            one.start()

    def between_lines(self, work: Callable[[], Result]) -> Future[Result]:
        """Run other work with the model once no line is spoken; new lines wait meanwhile.

        ``work`` runs in the batch's thread, which holds the model. If lines never pause, it never runs:
        cancel the future to withdraw it. The future gets BatchClosed if the batch closes first.
        """
        check_process(self._process, "the batch")
        asked = self._queue.between.ask(work)
        if self._queue.is_closed:
            self._queue.close()
        return asked

    def check_words(self) -> None:
        check_word_times(self.synthesizer.model)

    def words(self, spoken: Spoken) -> tuple[WordTime, ...]:
        return word_times(self.synthesizer.model, spoken)

    def describe(self, spoken: Sequence[Spoken], options: GenerateOptions, elapsed_s: float) -> str:
        return describe(self.synthesizer.model, spoken, options, elapsed_s)

    @property
    def status(self) -> BatchStatus:
        return self._queue.status

    def close(self) -> None:
        if self._job.is_here:
            _stop(self._queue, self._job)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stop(queue: Queue, job: Job) -> None:
    """End all lines and join the thread, unless it still waits for the model, which the caller may hold."""
    queue.close()
    if queue.has_model and not job.is_current:
        job.join()


def _end(queue: Queue, job: weakref.ref[Job]) -> None:
    if (running := job()) is not None and running.is_here:
        _stop(queue, running)


def _serve(synthesizer: Synthesizer, queue: Queue, settings: Settings) -> None:
    """Run batches until the queue is closed. Holds no ``Batch``, so that it can be dropped."""
    try:
        while not queue.is_closed:
            _serve_next(synthesizer, queue, settings)
    except BatchClosed:  # while the thread waited for the model
        pass
    finally:
        queue.close()


def _serve_next(synthesizer: Synthesizer, queue: Queue, settings: Settings) -> None:
    first = None
    try:
        if (first := queue.first()) is not None:
            with _model(synthesizer, queue), older_objects_spared():
                _run(Running(synthesizer, queue, first, settings), queue)
            return
        if queue.between.waits:
            with _model(synthesizer, queue):
                queue.between.do()
            return
        queue.bell.wait()
    except BatchClosed:
        raise
    except Exception as error:  # from a batch that did not begin
        log.exception("a running batch failed: its lines were ended")
        if first is not None:
            queue.drop(first, error)  # without a row so far, it would be retried for ever


@contextmanager
def _model(synthesizer: Synthesizer, queue: Queue) -> Iterator[None]:
    """Hold the model; raise BatchClosed if the batch was closed meanwhile: torch must not be called at program exit."""
    with synthesizer.model.exclusive():
        queue.has_model = True
        try:
            if queue.is_closed:
                raise BatchClosed
            with synthesizer.session():
                yield
        finally:
            queue.has_model = False


def _run(running: Running, queue: Queue) -> None:
    try:
        running.run()
    except BaseException as error:
        lines = running.lines
        if not lines:
            raise
        if not isinstance(error, BatchClosed):  # closing is no failure
            log.exception("a running batch failed with %d lines", len(lines))
        for line in lines:
            if not _retry(line, queue, error, alone=len(lines) == 1):
                line.fail(error)
        if not isinstance(error, Exception):
            raise


def _retry(line: LineState, queue: Queue, error: BaseException, alone: bool) -> bool:
    group = line.waiting.group
    was_alone = group != group_of(line.speech.options)
    heard = not line.is_untouched or line.speech.is_cancelled
    if alone or was_alone or heard or queue.is_closed or is_final(error):
        return False
    again = Waiting(line.speech, (*group, object()), line.parts.model.sample_rate)
    line.stop_text()
    line.speech.progress.done = 0
    queue.put_back(again)
    return True


def is_final(error: BaseException) -> bool:
    """Return whether no line can be spoken after an error: out of memory, or the program ends."""
    return isinstance(error, torch.cuda.OutOfMemoryError) or not isinstance(error, Exception)

"""Speak the lines of many callers in one running batch: one thread owns the model, lines join and leave between frames.

    with SpeechService(synthesizer, rows=8) as service:
        for chunk in service.speak(Line("Hello there.", voice)):
            player.write(chunk.samples)

All lines of a running batch have the same SEQ_GROUPS, decoding and tail; each has its own sampling. Lines with others
are another group, and groups take turns (``turns.py``). A line without text to speak holds no row. A line of a given
seed has the codes that ``stream_lines`` gives, up to the rounding of another batch size; what went wrong is not spoken
again. A line whose numbers are not finite ends with that error, and the others go on.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from ..graph.engine import on_device
from ..options import MOST_LINES, GenerateOptions
from ..speech.lines import Line, check_line
from ..synthesizer import Synthesizer
from .desk import Desk, ServiceClosed, ServiceStatus
from .open_decoding import LINGER_S, OpenDecoding
from .utterance import Utterance, group_of

log = logging.getLogger(__name__)

ROWS = 8
WAITING = 64
Result = TypeVar("Result")


class SpeechService:
    """Speaks lines of many callers. Any thread may call it.

    Args:
        synthesizer: the checkpoint and its engine.
        rows: how many lines are spoken at a time, 1 to 256.
        waiting: how many more may wait; likewise how many whose text has not come, and how many that have begun and
            wait for a slow reader, for text or for a turn.
        linger_s: the model is free for others when no line has come for so many seconds.
    """

    def __init__(
        self,
        synthesizer: Synthesizer,
        rows: int = ROWS,
        waiting: int = WAITING,
        linger_s: float = LINGER_S,
    ):
        if not 1 <= rows <= MOST_LINES or waiting < 1:
            raise ValueError(
                f"rows is {rows} and waiting is {waiting}: choose 1 to {MOST_LINES} rows, and 1 or more that wait"
            )
        self._synthesizer, self._desk = synthesizer, Desk(rows, waiting)
        self._process = os.getpid()
        serve = partial(_serve, synthesizer, self._desk, rows, linger_s)
        self._thread = threading.Thread(target=serve, name="speech service", daemon=True)
        self._thread.start()
        # A service that is dropped: the garbage collector may run in this thread, or in one that it needs.
        weakref.finalize(self, self._desk.leave).atexit = False
        # When the program ends: a thread that is in torch then would abort it.
        weakref.finalize(self._thread, _end, self._desk, weakref.ref(self._thread))

    def speak(
        self,
        line: Line,
        options: GenerateOptions | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> Utterance:
        """Queue a line; return what reads it.

        Args:
            line: its text may be an iterator of strings (see ``Line``).
            options: None takes the defaults; ``batch_size`` and ``retries`` are not used.
            on_change: called when the utterance has something new (see ``Utterance``).

        Raises:
            ValueError: as ``stream_lines``.
            Busy: if too many lines wait.
            ServiceClosed: after ``close``, and in a process that was forked from the one that made the service.
        """
        self._check_process()
        options, model = options or GenerateOptions(), self._synthesizer.model
        self._synthesizer.engine.choose(model, options)
        check_line(model, line)
        utterance = Utterance(line, options, group_of(options), self._desk.bell, on_change)
        self._desk.put(utterance)
        utterance.start()  # behind it: the text of a line that is refused is not touched
        return utterance

    def between_lines(self, work: Callable[[], Result]) -> Future[Result]:
        """Do something else with the model in a moment in which no line is spoken; lines that come meanwhile wait.

        Args:
            work: called in the service's thread, which holds the model (``Synthesizer.session``). While lines are
                spoken it waits, for ever if they never pause: cancel the result to withdraw it.

        Returns:
            what has its result or its error; ServiceClosed if the service is closed before.
        """
        self._check_process()
        asked = self._desk.between.ask(work)
        if self._desk.is_closed:
            self._desk.close()
        return asked

    def _check_process(self) -> None:
        """Raise ServiceClosed in a forked process, where no thread would speak."""
        if self._process != os.getpid():
            raise ServiceClosed("the service was made before this process was forked: create another here")

    @property
    def status(self) -> ServiceStatus:
        """What the service does now."""
        return self._desk.status

    def close(self) -> None:
        """End all lines, and return when the model is free."""
        if self._process == os.getpid():
            _stop(self._desk, self._thread)

    def __enter__(self) -> SpeechService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stop(desk: Desk, thread: threading.Thread) -> None:
    """End all lines; wait until the thread has ended, unless it calls this."""
    desk.close()
    if thread is not threading.current_thread():
        thread.join()


def _end(desk: Desk, thread: weakref.ref[threading.Thread]) -> None:
    """End all lines if the thread still runs."""
    if (running := thread()) is not None and running.is_alive():
        _stop(desk, running)


def _serve(synthesizer: Synthesizer, desk: Desk, rows: int, linger_s: float) -> None:
    """Speak what comes, batch by batch, until the desk is closed; without the service, which can so be dropped."""
    while not desk.is_closed:
        first = None
        try:
            if (first := desk.first()) is None:
                if desk.between.waits:
                    with synthesizer.session():
                        desk.between.do()
                desk.bell.wait()
                continue
            with synthesizer.session(), on_device(synthesizer.model.device):
                OpenDecoding(synthesizer, desk, first, rows, linger_s).run()
        except Exception as error:  # the readers of its lines have got it, and the next batch may well run
            log.exception("a running batch failed: its lines were ended")
            if first is not None:
                desk.drop(first, error)  # if it never got as far as a row, it would be tried for ever
    desk.close()

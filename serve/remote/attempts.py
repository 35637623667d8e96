"""Retry requests to a server: the first question, voices, and lines."""

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent import futures
from concurrent.futures import Future
from contextlib import closing, suppress
from typing import Any, TypeVar

from ...morph.runtime.wake_up import WakeUpEvent
from .connection import Answer, AnswerListener, Connection, connect
from .facts import ServerFacts
from .failure import Failure
from .payload import SpeechJob, uploaded_name
from .servers import Server

T = TypeVar("T")


class LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="remote speech", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def close(self) -> None:
        """Cancel what still runs, and wait until the thread has ended."""
        with suppress(RuntimeError):  # it is closed
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self.loop.run_forever()
        if tasks := asyncio.all_tasks(self.loop):
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(tasks))
        self.loop.close()


class LoopWakeUpEvent(WakeUpEvent):
    """An event that calls ``on_set`` in an event loop, unless that is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        super().__init__()
        self._loop = loop
        self.on_set: Callable[[], None] = lambda: None

    def set(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.on_set)


log = logging.getLogger(__name__)

ATTEMPTS = 8  # per take: a minute in all, longer than a server takes to start
FIRST_ATTEMPTS = 4  # of the first question: 3.5 s in all, because most often no server is starting there
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
TOLD_AT = 3  # the attempt whose failure is logged: the wait gets noticeable
WAITING = "%s; it is asked again for %s"
LOOKS_EVERY_S = 0.02


def wait_s(attempt: int, error: Failure) -> float:
    """Return the seconds to wait after a failed attempt, counted from 1."""
    after = error.remedy.after_s
    return min(FIRST_WAIT_S * 2 ** (attempt - 1) if after is None else after, LONGEST_WAIT_S)


def ask_server(server: Server, on_wait: Callable[[], None] = lambda: None, attempts: int = 1) -> ServerFacts:
    """Return a server's facts; ConnectionError, with its name and the fix, if it is no reachable speech server.

    ``on_wait`` is called meanwhile, and ends the wait if it raises. ``attempts``: while nothing listens there.
    """
    with closing(LoopThread()) as thread:
        asked = thread.run(ask(server, attempts))
        while not futures.wait([asked], LOOKS_EVERY_S).done:
            on_wait()
    try:
        return asked.result()
    except Failure as error:
        raise error.for_people() from error


async def ask(server: Server, attempts: int = 1) -> ServerFacts:
    """Return a server's facts, also if it is just starting; ``Failure`` if it does not answer."""
    for attempt in itertools.count(1):
        try:
            async with connect(server) as connection:
                return await connection.ask()
        except Failure as error:
            if attempt >= attempts or not error.remedy.again or error.remedy.listens:
                raise
            if attempt == TOLD_AT:
                log.warning(WAITING, error, "a few seconds")
            wait = wait_s(attempt, error)
        await asyncio.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


class Attempts:
    """Lines and their voices at one server, each with up to ATTEMPTS attempts."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._uploads: dict[str, asyncio.Task[None]] = {}
        self._is_waited_for = False

    async def speak(self, job: SpeechJob, listen: Callable[[], AnswerListener]) -> Answer:
        """Return the answer to a job, or raise the last ``Failure``; ``listen`` returns an attempt's listener."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                await self._upload(job)
                answer = await self._connection.speak(job, listen())
            except Failure as error:
                if attempt == ATTEMPTS or not self._may_help(job, error):
                    raise
                if attempt == TOLD_AT and error.remedy.ends_all and not self._is_waited_for:
                    log.warning(WAITING, error, "about a minute")
                    self._is_waited_for = True
                wait = wait_s(attempt, error)
            else:
                self._is_waited_for = False
                return answer
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _may_help(self, job: SpeechJob, error: Failure) -> bool:
        """Return whether another attempt may help; drop a voice that the server does not know (any more)."""
        if error.remedy.upload and job.upload is not None:
            self._uploads.pop(uploaded_name(job.upload), None)
            return True
        return error.remedy.again

    async def _upload(self, job: SpeechJob) -> None:
        if job.upload is None:
            return
        name = uploaded_name(job.upload)
        task = self._uploads.get(name)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._uploads[name] = asyncio.create_task(self._connection.upload(job.upload))
        await asyncio.shield(task)

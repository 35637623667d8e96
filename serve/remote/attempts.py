"""Retry requests to a server: the first question, voices, and lines."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent import futures
from concurrent.futures import Future
from contextlib import closing, suppress
from functools import partial
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
        """Cancel all tasks, and wait for the thread's end."""
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
FIRST_ATTEMPTS = 4  # of the first question: 3.5 s in all, because rarely a server is just starting
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0
TOLD_AT = 3  # the attempt whose failure is logged: the wait gets noticeable
WAITING = "%s; it is asked again for %s"
LOOKS_EVERY_S = 0.02


async def retry(
    work: Callable[[], Awaitable[T]],
    attempts: int,
    may_help: Callable[[Failure], bool],
    warn: Callable[[Failure], None],
) -> T:
    """Return the result of ``work``, after up to ``attempts`` attempts; raise the last ``Failure``."""
    for attempt in range(1, attempts):
        try:
            return await work()
        except Failure as error:
            if not may_help(error):
                raise
            if attempt == TOLD_AT:
                warn(error)
            after_s = error.remedy.after_s
        wait_s = FIRST_WAIT_S * 2 ** (attempt - 1) if after_s is None else after_s
        await asyncio.sleep(min(wait_s, LONGEST_WAIT_S))
    return await work()


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
    """Return a server's facts; ``Failure`` if it does not answer. Retry while nothing listens at its address."""

    async def attempt() -> ServerFacts:
        async with connect(server) as connection:
            return await connection.ask()

    return await retry(
        attempt,
        attempts,
        lambda error: error.remedy.again and not error.remedy.listens,
        lambda error: log.warning(WAITING, error, "a few seconds"),
    )


class Attempts:
    """Lines and their voices at one server, each with up to ATTEMPTS attempts."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._uploads: dict[str, asyncio.Task[None]] = {}
        self._has_warned = False

    async def speak(self, job: SpeechJob, listen: Callable[[], AnswerListener]) -> Answer:
        """Return the answer to a job, or raise the last ``Failure``; ``listen`` returns an attempt's listener."""

        async def attempt() -> Answer:
            await self._upload(job)
            answer = await self._connection.speak(job, listen())
            self._has_warned = False
            return answer

        return await retry(attempt, ATTEMPTS, partial(self._may_help, job), self._warn)

    def _warn(self, error: Failure) -> None:
        if error.remedy.ends_all and not self._has_warned:
            log.warning(WAITING, error, "about a minute")
            self._has_warned = True

    def _may_help(self, job: SpeechJob, error: Failure) -> bool:
        """Return whether to retry; forget a voice that the server does not know (any more)."""
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

"""Several jobs at the same time, each in a thread of its own, watched by the thread that started them."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..batch.channel import StreamClosed

T = TypeVar("T")
LOOKS_EVERY_S = 0.02


@dataclass(frozen=True)
class Ended:
    """A job has ended; ``error`` is what it raised, or None."""

    error: BaseException | None = None


class Reporter(Generic[T]):
    """What a job tells its news with. It raises StreamClosed once nobody waits for the job any more."""

    def __init__(self, tell: Callable[[T], None], stop: threading.Event):
        self._tell, self._stop = tell, stop

    def __call__(self, news: T) -> None:
        self.check()
        self._tell(news)

    def check(self) -> None:
        """Raise StreamClosed if the job is to end."""
        if self._stop.is_set():
            raise StreamClosed


Job = Callable[[Reporter[T]], None]


class Together(Generic[T]):
    """Runs jobs, each in its thread. Use it in a ``with``: leaving it ends the jobs at their next news.

    Args:
        jobs: they are called with what they tell news with.
    """

    def __init__(self, jobs: Sequence[Job[T]]):
        self._news: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(self._run, *job), name="lines", daemon=True
            )
            for job in enumerate(jobs)
        ]

    def __enter__(self) -> Together[T]:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def __iter__(self) -> Iterator[tuple[int, T | Ended | None]]:
        """Yield each job's number and news, the last of which is ``Ended``, until all have ended.

        Where nothing came for LOOKS_EVERY_S the news are None, so that a caller can look whether to go on.
        """
        running = len(self._threads)
        while running:
            try:
                number, news = self._news.get(timeout=LOOKS_EVERY_S)
            except queue.Empty:
                yield 0, None
                continue
            running -= isinstance(news, Ended)
            yield number, news

    def _run(self, number: int, job: Job[T]) -> None:
        ended = Ended()
        try:
            job(Reporter(lambda news: self._news.put((number, news)), self._stop))
        except StreamClosed:
            pass
        except BaseException as error:
            ended = Ended(error)
        finally:
            self._news.put((number, ended))

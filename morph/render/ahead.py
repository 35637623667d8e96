"""Run an iterator in a thread of its own: what takes long holds up nothing else."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

MOST_WAITING = 1  # values that nobody has taken: an iterator that is farther ahead waits

T = TypeVar("T")


@dataclass(frozen=True)
class Given(Generic[T]):
    """What an iterator has given: a value, its end (``value`` is None), or what it raised."""

    value: T | None = None
    error: BaseException | None = None


class Ahead(Generic[T]):
    """One thread that runs one iterator, a value ahead of those that are taken.

    It rests after each value as long as it has worked for it: while it works, a thread that calls many short
    operations, as speech does, gets Python's lock up to 5 ms later for each of them.

    Args:
        values: only the thread touches it.
        bell: called in the thread whenever a value is there.
    """

    def __init__(self, values: Iterator[T], bell: Callable[[], None]):
        self._bell = bell
        self._given: queue.Queue[Given[T]] = queue.Queue(MOST_WAITING)
        self._closed = threading.Event()
        run = contextvars.copy_context().run
        # Only the thread holds the iterator, which may refer to whoever holds this.
        threading.Thread(target=run, args=(self._run, values), name="speech text", daemon=True).start()

    def take(self) -> Given[T] | None:
        """Return the next of what it has given; None if there is nothing yet."""
        try:
            return self._given.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        """Want no more: the thread ends with the value that it makes now. This does not wait for it."""
        self._closed.set()
        while self.take() is not None:  # the thread may wait for a place
            pass

    def _run(self, values: Iterator[T]) -> None:
        try:
            began = time.thread_time()
            for value in values:
                took = time.thread_time() - began
                self._put(Given(value))
                if self._closed.wait(took):
                    return
                began = time.thread_time()
            self._put(Given())
        except BaseException as error:
            self._put(Given(error=error))

    def _put(self, given: Given[T]) -> None:
        self._given.put(given)
        self._bell()

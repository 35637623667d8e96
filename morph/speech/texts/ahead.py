"""Run an iterator in its own thread, so that slow steps delay nothing else."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

MOST_WAITING = 1  # values not taken yet; then the iterator waits

T = TypeVar("T")


@dataclass(frozen=True)
class Given(Generic[T]):
    """What an iterator gave: a value, its end (``value`` is None), or its error."""

    value: T | None = None
    error: BaseException | None = None


class _Rests:
    def __init__(self, closed: threading.Event):
        self._closed = closed
        self._begin()

    def _begin(self) -> None:
        self._began, self._began_work = time.monotonic(), time.thread_time()

    @property
    def worked_s(self) -> float:
        return time.thread_time() - self._began_work

    @property
    def waited_s(self) -> float:
        return max(0.0, time.monotonic() - self._began - self.worked_s)

    def take(self, seconds: float) -> None:
        self._closed.wait(seconds)
        self._begin()


_RESTS: contextvars.ContextVar[_Rests | None] = contextvars.ContextVar("rests", default=None)


def rested(is_stopped: Callable[[], bool]) -> Callable[[], bool]:
    """Return ``is_stopped`` with a pause before it, for the steps of an iterator that ``Ahead`` runs.

    It lasts as long as the step, if other threads worked meanwhile; in another thread there is none.
    """

    def ask() -> bool:
        if (rests := _RESTS.get()) is not None:
            rests.take(min(rests.worked_s, rests.waited_s))
        return is_stopped()

    return ask


class Ahead(Generic[T]):
    """One thread that runs one iterator, one value ahead of its reader.

    It pauses after each value and between its steps (``rested``). Otherwise a thread of many short operations, as in
    decoding, gets the GIL up to 5 ms late for each. ``bell`` is called in the thread for each value.
    """

    def __init__(self, values: Iterator[T], bell: Callable[[], None]):
        self._bell = bell
        self._given: queue.Queue[Given[T]] = queue.Queue(MOST_WAITING)
        self._closed = threading.Event()
        run = contextvars.copy_context().run
        # Only the thread holds the iterator, which may refer to the owner of this object.
        threading.Thread(target=run, args=(self._run, values), name="speech text", daemon=True).start()

    def take(self) -> Given[T] | None:
        try:
            return self._given.get_nowait()
        except queue.Empty:
            return None

    @property
    def has_given(self) -> bool:
        return not self._given.empty()

    def close(self) -> None:
        """End the thread after its current value; does not wait for it."""
        self._closed.set()
        while self.take() is not None:  # the thread may wait to put a value
            pass

    def _run(self, values: Iterator[T]) -> None:
        try:
            rests = _Rests(self._closed)
            _RESTS.set(rests)
            for value in values:
                self._put(Given(value))
                rests.take(rests.worked_s)
                if self._closed.is_set():
                    return
            self._put(Given())
        except BaseException as error:
            self._put(Given(error=error))

    def _put(self, given: Given[T]) -> None:
        self._given.put(given)
        self._bell()

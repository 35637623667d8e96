"""Threads: a lock that refuses a forked process, an event that any code may set, a pace for long work.

And a setting of the process that blocks in several threads share.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

Result = TypeVar("Result")


def check_process(process: int, name: str) -> None:
    """Raise RuntimeError in a fork of ``process``: threads do not survive a fork."""
    if process != os.getpid():
        raise RuntimeError(
            f"{name} belongs to the process that this one was forked from: load the model in this process"
        )


class Exclusive:
    """A reentrant lock; ``name`` is for its error."""

    def __init__(self, name: str):
        self._name, self._process = name, os.getpid()
        self._lock = threading.RLock()

    def check(self) -> None:
        """Raise RuntimeError in a forked process."""
        check_process(self._process, self._name)

    def __enter__(self) -> None:
        self.check()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class SharedSetting:
    """A setting of the process for blocks that may overlap: the first one changes it, the last one restores it.

    ``change`` returns what restores it.
    """

    def __init__(self, change: Callable[[], Callable[[], object]]):
        self._change, self._lock, self._wanted = change, threading.Lock(), 0

    def hold(self) -> None:
        """Change it for good."""
        with self._lock:
            if not self._wanted:
                self._restore = self._change()
            self._wanted += 1

    @contextmanager
    def block(self) -> Iterator[None]:
        self.hold()
        try:
            yield
        finally:
            with self._lock:
                self._wanted -= 1
                if not self._wanted:
                    self._restore()


class Waker(Protocol):
    """The setting side of an event. Any thread may call ``set``, even in a finalizer."""

    def set(self) -> None: ...


class WakeUpEvent:
    """An event for one waiting thread. ``set`` releases a lock: unlike ``threading.Event``, safe in a finalizer."""

    # No SimpleQueue: its ``get`` may wait for ever if the timeout ends before it checks the queue again.

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wake the thread in ``wait``, now or when it is called next."""
        with suppress(RuntimeError):  # already set
            self._unset.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until set, and reset; return False after ``timeout`` seconds. For one thread only."""
        return self._unset.acquire(timeout=-1 if timeout is None else timeout)


class Pace:
    """Pauses between the steps of a thread, each for as long as the step if other threads waited meanwhile.

    Otherwise a thread of many short operations, as in decoding, gets the GIL up to 5 ms late for each. Call ``keep``
    between the steps of ``run``.
    """

    def __init__(self, stopped: threading.Event):
        self._stopped = stopped

    def run(self, call: Callable[[], Result]) -> Result:
        self._began = time.monotonic(), time.thread_time()
        return call()

    def keep(self) -> None:
        """Pause between two steps; raise InterruptedError once the event is set."""
        began, worked = self._began
        worked = time.thread_time() - worked
        waited = time.monotonic() - began - worked
        if self._stopped.wait(max(0.0, min(worked, waited))):
            raise InterruptedError("the work was stopped")
        self._began = time.monotonic(), time.thread_time()

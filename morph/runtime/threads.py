"""Threads: a pool that keeps idle ones, a lock that refuses a forked process, an event that any code may set.

And a pace for long work, and a setting of the process that blocks in several threads share.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Protocol, TypeAlias, TypeVar

MOST_IDLE = 2  # threads

Result = TypeVar("Result")
Call: TypeAlias = Callable[[], None]
_Tasks: TypeAlias = "SimpleQueue[Task | None]"


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

    def __enter__(self) -> None:
        check_process(self._process, self._name)
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


class Task:
    """A call in a thread of the pool."""

    def __init__(self, call: Call):
        self.calls = [call]  # empty once it is made: an idle thread keeps its last task
        self.thread: threading.Thread | None = None
        self.done = threading.Event()
        self._process = os.getpid()

    @property
    def is_here(self) -> bool:
        return self._process == os.getpid()

    def join(self) -> None:
        """Wait until the call has returned; raise RuntimeError inside the call."""
        if self.is_current:
            raise RuntimeError("a task cannot wait for its own end")
        self.done.wait()

    @property
    def is_current(self) -> bool:
        return self.thread is threading.current_thread() and not self.done.is_set()


class ThreadPool:
    """A pool that starts every task immediately, in an idle thread or a new one. Idle threads end with it.

    A new thread starts on a cold core, which delays a stream by 0.4 ms.
    """

    def __init__(self, name: str):
        self._name = name
        self._process, self._idle = os.getpid(), _Idle()
        # Not at exit: a thread that ends then may need Python to free its tensors, and would abort the process.
        weakref.finalize(self, self._idle.close).atexit = False

    def start(self, call: Call) -> Task:
        """Start a call in a thread. It must not raise: only ``threading.excepthook`` would report it."""
        check_process(self._process, "the engine")
        task = Task(call)
        queue = self._idle.take()
        if queue is None:
            queue = SimpleQueue()
            threading.Thread(target=_work, args=(queue, self._idle), name=self._name, daemon=True).start()
        queue.put(task)
        return task


class _Idle:
    """The queues of idle threads. Threads refer to this and not to the pool, so the pool can be collected."""

    def __init__(self) -> None:
        self.working = 0
        self._lock = threading.Lock()
        self._queues: list[_Tasks] = []
        self._closed = False

    def take(self) -> _Tasks | None:
        with self._lock:
            self.working += 1
            return self._queues.pop() if self._queues else None

    def offer(self, queue: _Tasks, intact: bool) -> bool:
        """Offer a thread for reuse; return False if it must exit: enough are idle, or its task raised."""
        with self._lock:
            self.working -= 1
            if not intact or self._closed or len(self._queues) == MOST_IDLE:
                return False
            self._queues.append(queue)
        if self._closed:  # meanwhile
            self._end()
        return True

    def close(self) -> None:
        """End idle threads, and the others after their tasks. Takes no lock: see ``WakeUpEvent``."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        while True:
            try:
                self._queues.pop().put(None)
            except IndexError:
                return


def _work(queue: _Tasks, idle: _Idle) -> None:
    while (task := queue.get()) is not None:
        intact = False
        try:
            task.thread = threading.current_thread()
            task.calls.pop()()
            intact = True
        finally:  # before the task is done: the waiter may start the next one, which should get this thread
            reused = idle.offer(queue, intact)
            task.done.set()
        if not reused:
            return


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

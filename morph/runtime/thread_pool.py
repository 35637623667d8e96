"""A thread pool that keeps idle threads: a new one starts on a cold core, which delays a stream by 0.4 ms."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from .exclusive import check_process

MOST_IDLE = 2  # threads

Call: TypeAlias = Callable[[], None]
_Tasks: TypeAlias = "SimpleQueue[Task | None]"


class Task:
    def __init__(self, call: Call):
        self._call: Call | None = call
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._done = threading.Event()

    def run(self) -> None:
        """Make the call in the current thread, and drop it; call ``end`` next."""
        call, self._call = self._call, None
        self._thread = threading.current_thread()
        if call is not None:
            call()

    def end(self) -> None:
        self._done.set()

    @property
    def is_here(self) -> bool:
        return self._process == os.getpid()

    def join(self) -> None:
        """Wait until the call has returned; raise RuntimeError inside the call."""
        if self.is_current:
            raise RuntimeError("a task cannot wait for its own end")
        self._done.wait()

    @property
    def is_current(self) -> bool:
        return self._thread is threading.current_thread() and not self._done.is_set()


class ThreadPool:
    """A pool that starts every task immediately, in an idle thread or a new one. Idle threads end with it."""

    def __init__(self, name: str):
        self._name = name
        self._process, self._idle = os.getpid(), _Idle()
        # Not at exit: a thread that ends then may need Python to free its tensors, and would abort the process.
        weakref.finalize(self, self._idle.close).atexit = False

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def working(self) -> int:
        return self._idle.working

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

    def __len__(self) -> int:
        return len(self._queues)

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
            task.run()
            intact = True
        finally:  # before ``end``: the waiter may start the next task, which should get this thread
            reused = idle.offer(queue, intact)
            task.end()
        if not reused:
            return

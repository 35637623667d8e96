"""A thread pool: a new thread starts on a cold core, which costs a first sample 0.4 ms."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from .exclusive import check_process

KEPT = 2  # idle threads

Call: TypeAlias = Callable[[], None]
_Jobs: TypeAlias = "SimpleQueue[Job | None]"


class Job:
    def __init__(self, call: Call):
        self._call: Call | None = call
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._done = threading.Event()

    def run(self) -> None:
        """Make the call in the current thread, and forget it; ``end`` is next."""
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
        """Wait for the end of the call; raise RuntimeError within the call itself."""
        if self.is_current:
            raise RuntimeError("a job cannot wait for its own end")
        self._done.wait()

    @property
    def is_current(self) -> bool:
        return self._thread is threading.current_thread() and not self._done.is_set()


class KeptThreads:
    """Starts jobs immediately, each in an idle thread or a new one. Idle threads end with this object."""

    def __init__(self, name: str):
        self._name = name
        self._process, self._idle = os.getpid(), _Idle()
        # Not at the program's end: a thread that ends then may need Python to free its tensors, and aborts the program.
        weakref.finalize(self, self._idle.close).atexit = False

    @property
    def idle(self) -> int:
        return len(self._idle)

    @property
    def working(self) -> int:
        return self._idle.working

    def start(self, call: Call) -> Job:
        """Make a call in a thread. It must not raise: only ``threading.excepthook`` would notice."""
        check_process(self._process, "the engine")
        job = Job(call)
        queue = self._idle.take()
        if queue is None:
            queue = SimpleQueue()
            threading.Thread(target=_work, args=(queue, self._idle), name=self._name, daemon=True).start()
        queue.put(job)
        return job


class _Idle:
    """The queues of idle threads. Threads know this, not the ``KeptThreads``, which can so be collected."""

    def __init__(self) -> None:
        self.working = 0
        self._lock = threading.Lock()
        self._queues: list[_Jobs] = []
        self._closed = False

    def __len__(self) -> int:
        return len(self._queues)

    def take(self) -> _Jobs | None:
        with self._lock:
            self.working += 1
            return self._queues.pop() if self._queues else None

    def offer(self, queue: _Jobs, whole: bool) -> bool:
        """Offer an idle thread for reuse; return False if it should exit: enough wait, or it is not ``whole``."""
        with self._lock:
            self.working -= 1
            if not whole or self._closed or len(self._queues) == KEPT:
                return False
            self._queues.append(queue)
        if self._closed:  # meanwhile
            self._end()
        return True

    def close(self) -> None:
        """End idle threads, and the others after their jobs. Takes no lock: see ``Bell``."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        while True:
            try:
                self._queues.pop().put(None)
            except IndexError:
                return


def _work(queue: _Jobs, idle: _Idle) -> None:
    while (job := queue.get()) is not None:
        whole = False
        try:
            job.run()
            whole = True
        finally:  # first: a waiter may start the next job, which should get this thread
            kept = idle.offer(queue, whole)
            job.end()
        if not kept:
            return

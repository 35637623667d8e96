"""An event for one waiting thread that any code may set, even the garbage collector."""

import threading
from contextlib import suppress
from typing import Protocol


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

    @property
    def is_set(self) -> bool:
        """Whether ``wait`` returns at once."""
        return not self._unset.locked()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until set, and reset; return False after ``timeout`` seconds. For one thread only."""
        return self._unset.acquire(timeout=-1 if timeout is None else timeout)

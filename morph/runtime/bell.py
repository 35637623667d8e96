"""A wake-up for one waiting thread, which any code may set, even the garbage collector."""

import threading
from contextlib import suppress
from typing import Protocol


class Wakes(Protocol):
    """Tells a thread that something has changed. Any thread may call it, even in a finalizer."""

    def set(self) -> None: ...


class Bell:
    """An event for one waiting thread; a lock's ``release``, unlike ``threading.Event``, is safe in a finalizer."""

    # No SimpleQueue: its ``get`` with a timeout may wait for ever if the time is over before it looks again.

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def set(self) -> None:
        """Wake the thread in ``wait``, now or when it is called next."""
        with suppress(RuntimeError):  # it is set already
            self._silent.release()

    @property
    def is_set(self) -> bool:
        """Whether ``wait`` returns at once."""
        return not self._silent.locked()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait to be woken, and reset; return False if that took over ``timeout`` seconds. For one thread only."""
        return self._silent.acquire(timeout=-1 if timeout is None else timeout)

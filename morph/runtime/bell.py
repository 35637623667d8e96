"""A wake-up for one waiting thread, which any code may set, even the garbage collector."""

from queue import Empty, SimpleQueue


class Bell:
    """An event for one waiting thread; ``SimpleQueue.put``, unlike ``threading.Event``, is safe in a finalizer."""

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Wake the thread in ``wait``, now or when it is called next."""
        if self._rings.empty():
            self._rings.put(None)

    @property
    def is_set(self) -> bool:
        """Whether ``wait`` returns at once."""
        return not self._rings.empty()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait to be woken, and reset; return False if that took over ``timeout`` seconds. For one thread only."""
        try:
            self._rings.get(timeout=timeout)
        except Empty:
            return False
        return True

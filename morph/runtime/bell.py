"""A bell for one thread that waits, which may be rung anywhere, also by the garbage collector."""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Bell:
    """Wakes one thread.

    ``threading.Event`` has a lock, and the garbage collector may run while a thread holds it: what is finalized then
    could not set the event. ``SimpleQueue.put`` is made to be called from there.
    """

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Ring: ``wait`` returns, now or when it is called next."""
        if self._rings.empty():
            self._rings.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a ring, and forget it; return False if none came in ``timeout`` seconds. For one thread only."""
        try:
            self._rings.get(timeout=timeout)
        except Empty:
            return False
        return True

"""What one thread uses at a time, in the process that had it when it was last free."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Exclusive:
    """A lock that a thread may take several times.

    A process that is forked while another thread holds it has a copy that nobody ever releases: that is an error there.

    Args:
        name: of what it protects, for the error.
    """

    def __init__(self, name: str):
        self._name = name
        self._lock = threading.RLock()
        self._holder: tuple[int, int] | None = None  # process and thread

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold it inside the ``with``; other threads wait.

        Raises:
            RuntimeError: if it was held by another thread when this process was forked.
        """
        here, holder = (os.getpid(), threading.get_ident()), self._holder
        # The thread that forked is the main one here. A new thread may have the ident of one that is gone.
        is_main = threading.current_thread() is threading.main_thread()
        is_holder = holder is not None and holder[1] == here[1] and is_main
        if holder is not None and holder[0] != here[0] and not is_holder:
            raise RuntimeError(
                f"{self._name} was in use when this process was forked, and cannot be used here: fork while nothing is "
                "spoken, or load the model in this process"
            )
        with self._lock:
            before, self._holder = self._holder, here
            try:
                yield
            finally:
                self._holder = before

"""A reentrant lock that notices a fork."""

from __future__ import annotations

import os
import threading


class Exclusive:
    """A reentrant lock for ``name``, held inside a ``with``."""

    # A process forked while another thread holds it would wait forever: entering raises RuntimeError there.

    def __init__(self, name: str):
        self._name = name
        self._lock = threading.RLock()
        self._holder: tuple[int, int] | None = None  # process and thread
        self._times = 0  # depth of the holder's nested ``with``

    def __enter__(self) -> None:
        here, holder = (os.getpid(), threading.get_ident()), self._holder
        if holder is not None and holder[0] != here[0]:
            # The thread that forked is the main one here. A new thread may have the ident of one that is gone.
            is_main = threading.current_thread() is threading.main_thread()
            if not (is_main and holder[1] == here[1]):
                raise RuntimeError(
                    f"{self._name} was in use when this process was forked, and cannot be used here: fork while "
                    "nothing is spoken, or load the model in this process"
                )
        self._lock.acquire()
        self._holder, self._times = here, self._times + 1

    def __exit__(self, *_: object) -> None:
        self._times -= 1
        if not self._times:
            self._holder = None
        self._lock.release()

"""A reentrant lock that refuses a forked process."""

import os
import threading


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

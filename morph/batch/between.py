"""Run other model work on the batch thread, while no line is spoken and none waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from ..runtime.bell import Bell


class Between:
    """A queue of idle-time work. Any thread asks; one thread does it, woken by ``bell``."""

    def __init__(self, bell: Bell):
        self._bell = bell
        self._asked: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def ask(self, work: Callable[[], Any]) -> Future[Any]:
        """Queue work. Cancel the future to withdraw work that has not begun."""
        future: Future[Any] = Future()
        self._asked.append((future, work))
        self._bell.set()
        return future

    @property
    def waits(self) -> bool:
        return bool(self._asked)

    def do(self) -> bool:
        """Run one piece of queued work, so that lines come before the next; return whether there was one.

        The caller holds the model.
        """
        while self._asked:
            future, work = self._asked.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except Exception as error:  # the caller gets it, and lines go on
                future.set_exception(error)
            return True
        return False

    def end(self, error: Exception) -> None:
        while self._asked:
            future, _ = self._asked.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

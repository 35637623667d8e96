"""The messages to a batch's thread: utterances that have changed, other model work, and the end."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from ..runtime.wake_up import WakeUpEvent


class BatchClosed(Exception):
    """The batch is closed."""


class Inbox(WakeUpEvent):
    """Any thread posts, without a lock: even the garbage collector. One thread reads."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = deque[Any]()  # weak references to utterances
        self._work = deque[tuple[Future[Any], Callable[[], Any]]]()
        self.is_closed = False

    def post(self, changed: Any) -> None:
        self.changed.append(changed)
        self.set()

    def close(self) -> None:
        self.is_closed = True
        self.set()

    def check_open(self) -> None:
        if self.is_closed:
            raise BatchClosed("the batch was closed while it spoke this line")

    def ask(self, work: Callable[[], Any]) -> Future[Any]:
        """Queue model work. Cancel the future to withdraw work that has not begun."""
        future = Future[Any]()
        self._work.append((future, work))
        self.set()
        return future

    @property
    def has_work(self) -> bool:
        return bool(self._work)

    def do_work(self) -> bool:
        """Run one piece of work, so that lines come before the next; return whether there was one."""
        while self._work:
            future, work = self._work.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except Exception as error:  # the caller gets it, and lines go on
                future.set_exception(error)
            return True
        return False

    def refuse_work(self, error: Exception) -> None:
        while self._work:
            future, _ = self._work.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(error)


class Signal:
    """Posts that the utterance of a line has changed: to its device, or to all while it has none.

    Its weak reference makes no cycle with what holds the signal.
    """

    def __init__(self, inboxes: Sequence[Inbox]):
        self._inboxes = inboxes

    def attach(self, utterance: Any) -> None:
        """Post this utterance from now on."""
        self._utterance = weakref.ref(utterance)

    def set(self) -> None:
        if (one := self._utterance()) is None:
            return
        for inbox in self._inboxes if one.device < 0 else [self._inboxes[one.device]]:
            inbox.post(self._utterance)

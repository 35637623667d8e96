"""An event loop in its own thread, for callers that must not block in one, such as ComfyUI's executor."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from ...morph.runtime.bell import Bell

T = TypeVar("T")


class LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="remote speech", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def close(self) -> None:
        """Cancel what still runs, and wait until the thread has ended."""
        with suppress(RuntimeError):  # it is closed
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self.loop.run_forever()
        if tasks := asyncio.all_tasks(self.loop):
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(tasks))
        self.loop.close()


class LoopBell(Bell):
    """An event that calls ``on_ring`` in an event loop, unless that is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        super().__init__()
        self._loop = loop
        self.on_ring: Callable[[], None] = lambda: None

    def set(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.on_ring)

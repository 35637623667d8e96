"""A coroutine in a thread of its own, watched by a thread that may stop it: ComfyUI's executor is such a thread."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")
LOOKS_EVERY_S = 0.02
ENDED = object()


class Background(Generic[T]):
    """Runs ``main(tell)``; ``tell`` hands over news. Use it in a ``with``: leaving it cancels what still runs.

    Args:
        main: makes the coroutine.
    """

    def __init__(self, main: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]]):
        self._news: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._main = main
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._begun = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="remote speech", daemon=True)

    def __iter__(self) -> Iterator[T | None]:
        """Yield the news, and None when there was none for LOOKS_EVERY_S.

        Raises:
            Exception: that of the coroutine, behind what it told.
        """
        while True:
            try:
                news = self._news.get(timeout=LOOKS_EVERY_S)
            except queue.Empty:
                yield None
                continue
            if news is ENDED:
                if self._error is not None:
                    raise self._error
                return
            yield news

    def __enter__(self) -> Background[T]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._begun.wait()
        if self._task is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # the loop has just ended by itself
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._watched())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._begun.set()
            self._loop.close()
            self._news.put(ENDED)

    async def _watched(self) -> None:
        self._task = asyncio.current_task()
        self._begun.set()
        await self._main(self._news.put)

"""Shut down: reject queued requests, let streams finish for a while, then end the process.

The batch thread may be busy for long, with a reference or a big codec step, and is not waited for: clients are told
from the event loop, and another thread ends the process when the time is over.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from socket import socket
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from ..routes.speaker import Speaker

log = logging.getLogger(__name__)

SPEAKING_S = 4.0  # for answers to end by themselves
TOLD_S = 0.5  # for the others to be told
CLOSING_S = 1  # for other work of connections
LAST_S = 8.5  # from the signal to the end of the process at the latest; ten seconds are promised
LOOKS_EVERY_S = 0.1
QUEUE = 1024  # connections in the system's backlog; one that finds no place retries after a second


class UvicornServer(uvicorn.Server):
    """uvicorn's server, for a process that ends with it; needs the ``Speaker`` in ``app.state.speaker``."""

    def run(self, sockets: list[socket] | None = None) -> None:
        """Serve until a signal. After SIGTERM this returns: uvicorn would raise the signal again."""
        before = signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            super().run(sockets)
        finally:
            signal.signal(signal.SIGTERM, before)

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen; a thread enforces the end from now on."""
        threading.Thread(target=self._watch, name="speech end", daemon=True).start()
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(QUEUE)  # asyncio has called it with the number that it accepts at once

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        speaker: Speaker = self.config.app.state.speaker  # type: ignore[union-attr]
        speaker.stop_taking()
        await self._wait(speaker, SPEAKING_S)
        speaker.end_all()
        await self._wait(speaker, TOLD_S)
        await super().shutdown(sockets)

    async def _wait(self, speaker: Speaker, seconds: float) -> None:
        """Wait until no request is spoken, at most ``seconds``, or until a second Ctrl+C."""
        until = time.monotonic() + seconds
        while speaker.is_speaking and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(LOOKS_EVERY_S)

    def _watch(self) -> None:
        # A signal's handler must take no locks, so it only sets a flag.
        while not self.should_exit:
            time.sleep(LOOKS_EVERY_S)
        time.sleep(LAST_S)
        log.warning("what runs has not ended %g s after the signal: the process ends without it", LAST_S)
        os._exit(1)

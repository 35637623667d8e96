"""uvicorn's server with limits of connections, and with a shutdown in time.

It rejects queued requests, lets streams finish for a while, then ends the process. The batch thread may be busy for
long, with a reference or a big codec step. So the event loop answers the clients, and another thread ends the process.
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

from ..api.options import Limits
from .connections import ACCEPT_FAILED, HEAD_BYTES, NO_REQUEST, Seldom, http_protocol, websocket_protocol

if TYPE_CHECKING:
    from ..routes.app import App
    from ..routes.speaker import Speaker

log = logging.getLogger(__name__)

SPEAKING_S = 4.0  # for answers to finish
TOLD_S = 0.5  # to send an error to the others
CLOSING_S = 1  # for other work of connections
LAST_S = 8.5  # from the signal to the end of the process; the documentation promises ten seconds
LOOKS_EVERY_S = 0.1
QUEUE = 1024  # connections in the system's backlog; further ones retry after a second


class UvicornServer(uvicorn.Server):
    """uvicorn's server, whose end ends the process; needs the ``Speaker`` in ``app.state.speaker``."""

    def __init__(self, app: App, limits: Limits, connections: int, backlog: int):
        config = uvicorn.Config(
            app,
            http=http_protocol(limits, connections),
            ws=websocket_protocol(limits),
            log_config=None,
            access_log=False,
            ws_max_size=limits.body_bytes,
            h11_max_incomplete_event_size=HEAD_BYTES,
            timeout_graceful_shutdown=CLOSING_S,
            backlog=backlog,
            server_header=False,
        )
        super().__init__(config)
        self._speaker: Speaker = app.state.speaker
        logging.getLogger("uvicorn.error").addFilter(Seldom(NO_REQUEST))
        logging.getLogger("asyncio").addFilter(Seldom(ACCEPT_FAILED))

    def run(self, sockets: list[socket] | None = None) -> None:
        """Serve until a signal. Return after SIGTERM: uvicorn would raise it again."""
        before = signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            super().run(sockets)
        finally:
            signal.signal(signal.SIGTERM, before)

    async def startup(self, sockets: list[socket] | None = None) -> None:
        threading.Thread(target=self._watch, name="speech end", daemon=True).start()
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(QUEUE)  # asyncio has set the number that it accepts in one step

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._speaker.stop_taking()
        await self._wait(SPEAKING_S)
        self._speaker.end_all()
        await self._wait(TOLD_S)
        await super().shutdown(sockets)

    async def _wait(self, seconds: float) -> None:
        """Wait for the end of all requests, of ``seconds``, or for a second Ctrl+C."""
        until = time.monotonic() + seconds
        while self._speaker.readings and time.monotonic() < until and not self.force_exit:
            await asyncio.sleep(LOOKS_EVERY_S)

    def _watch(self) -> None:
        # A signal's handler must take no locks, so it only sets a flag.
        while not self.should_exit:
            time.sleep(LOOKS_EVERY_S)
        time.sleep(LAST_S)
        log.warning("what runs has not ended %g s after the signal: the process ends without it", LAST_S)
        os._exit(1)

"""Connections that ask nothing are closed: uvicorn waits for a first request, and for one's rest, without an end."""

from __future__ import annotations

import asyncio
from typing import Any


class Impatient(asyncio.Protocol):
    """What is added to uvicorn's protocol of one connection, h11's or httptools'."""

    idle_seconds: float
    loop: asyncio.AbstractEventLoop
    transport: Any
    cycle: Any  # uvicorn's request and its answer; None before the first

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch = self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._watch.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request: uvicorn calls this when it has answered one."""
        uvicorn: Any = super()
        uvicorn.on_response_complete()
        self._watch.cancel()
        self._watch = self._wait()

    def _wait(self) -> asyncio.TimerHandle:
        return self.loop.call_later(self.idle_seconds, self.give_up)

    def give_up(self) -> None:
        """Close the connection unless a request is being answered, or it is a WebSocket now, with limits of its own."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self.transport.get_protocol() is self and not is_answering:
            self.transport.close()


def impatient_protocol(idle_seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol, which closes a connection without a complete request head after ``idle_seconds``."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    return type("ImpatientProtocol", (Impatient, AutoHTTPProtocol), {"idle_seconds": idle_seconds})

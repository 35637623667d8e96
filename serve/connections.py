"""Connections that ask nothing, or take nothing, are closed: uvicorn waits for both without an end."""

from __future__ import annotations

import asyncio
from typing import Any

from .options import Limits


class Stalling(asyncio.Protocol):
    """What is added to uvicorn's protocols: a client that takes nothing of what is sent is disconnected.

    What waits for it can be sent no more: not the rest of its answer, and not that its time is over.
    """

    stalled_seconds: float
    loop: asyncio.AbstractEventLoop
    transport: Any
    _stalled: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._go_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait for the client: nothing more fits into the buffers."""
        super().pause_writing()
        self._go_on()
        self._stalled = self.loop.call_later(self.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has taken something."""
        super().resume_writing()
        self._go_on()

    def _go_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()


class Impatient(Stalling):
    """What is added to uvicorn's protocol of an HTTP connection, h11's or httptools'."""

    idle_seconds: float
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


def http_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol; it closes connections without a complete request head, and with a stalled client."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    waits = {"idle_seconds": limits.idle_seconds, "stalled_seconds": limits.seconds}
    return type("HTTPProtocol", (Impatient, AutoHTTPProtocol), waits)


def websocket_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol of WebSockets; it closes those whose client has stalled."""
    from uvicorn.protocols.websockets import auto

    bases: tuple[Any, ...] = (Stalling, auto.AutoWebSocketsProtocol)  # uvicorn's type is that of a function
    return type("WebSocketProtocol", bases, {"stalled_seconds": limits.seconds})

"""uvicorn's server with limits of connections, and with a shutdown in time.

Limited are their number, a request's head, and idle or stalled time: uvicorn has no time limits, and counts no
WebSockets. HTTP is always parsed by h11, which limits a head.

The shutdown rejects queued requests, lets streams finish for a while, then ends the process. The batch thread may be
busy for long, with a reference or a big codec step. So the event loop answers the clients, and another thread ends the
process.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from http import HTTPStatus
from socket import socket
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets import auto

from ..api.errors import ApiError
from ..api.middleware import is_admitted
from ..api.options import Limits

if TYPE_CHECKING:
    from ..routes.app import App
    from ..routes.speaker import Speaker

log = logging.getLogger(__name__)

HEAD_BYTES = 64 * 1024  # of a request's line and headers, or of its trailers
STEP_BYTES = 16 * 1024  # parsed between two checks of the head's length
SPARE = 16  # connections beyond the limit, only for /health
CLOSED_AT_ONCE = 16  # idle connections, to make room for a new one
UNSENT_BYTES = 1 << 20  # pongs that a WebSocket's client does not read
MESSAGE_TIMES = 4  # the bytes before a complete message, as a multiple of the longest one
# Pings, pongs and fragments of a WebSocket between messages. Each costs as much as a kilobyte of text.
MOST_FRAMES = 1000
FRAMES_BYTES = 1024  # parsed between two checks of the frames' number
ACCEPT_FAILED = "socket.accept() out of system resource"  # asyncio's words
NO_REQUEST = "Invalid HTTP request received."  # uvicorn's
REPEATED_S = 1.0
HELD_S = 1.0  # until a connection that is not HTTP is closed
SPEAKING_S = 4.0  # for answers to finish
TOLD_S = 0.5  # to send an error to the others
CLOSING_S = 1  # for other work of connections
LAST_S = 8.5  # from the signal to the end of the process; the documentation promises ten seconds
LOOKS_EVERY_S = 0.1
QUEUE = 1024  # connections in the system's backlog; further ones retry after a second


def full() -> ApiError:
    headers = {"Retry-After": "2", "Connection": "close"}
    return ApiError(503, "the server has as many connections as it takes: try again", headers=headers)


def raw_answer(error: ApiError) -> bytes:
    answer = JSONResponse(error.body, error.status, error.headers)
    head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n".encode()
    return head + b"".join(b"%b: %b\r\n" % one for one in answer.raw_headers) + b"\r\n" + answer.body


Uvicorns: Any = asyncio.Protocol  # mixed into a protocol of uvicorn, whose methods are unknown here


class Stalling(Uvicorns):
    """Mixin for uvicorn's protocols: parses in steps, within limits, and disconnects a client that stops reading."""

    stalled_seconds: float
    held_seconds: float = HELD_S
    step_bytes = STEP_BYTES  # h11 checks a head's length after all of its input
    loop: asyncio.AbstractEventLoop
    transport: Any
    idle_since = 0.0
    _stalled: asyncio.TimerHandle | None = None
    _is_held = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._go_on()
        self._stalled = self.loop.call_later(self.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    def _go_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), self.step_bytes):
            step = data[start : start + self.step_bytes]
            if not self._may_parse(step):
                return
            super().data_received(step)

    def _may_parse(self, data: bytes) -> bool:
        return not (self._is_held or self.transport.is_closing())

    def _hold(self, end: Callable[[], None]) -> None:
        """Stop reading, and end a moment later: this slows clients that reconnect in a loop."""
        self._is_held = True
        self.transport.pause_reading()
        self.loop.call_later(self.held_seconds, end)


class Impatient(Stalling):
    """Closes idle HTTP connections, and limits the number of all.

    At the limit the address with most idle connections loses its longest idle ones. If none is idle, SPARE more are
    accepted for /health, and further ones are closed at once.
    """

    idle_seconds: float
    most: int  # connections, WebSockets too
    connections: set[Any]  # uvicorn's, of all protocols
    config: Any
    app: Any
    cycle: Any  # uvicorn's request and its answer; None before the first

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._watch = self._wait()
        if len(self.connections) > self.most:
            self._find_place()

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch.cancel()
        self._watch = self._wait()

    def _wait(self) -> asyncio.TimerHandle:
        self.idle_since = self.loop.time()
        return self.loop.call_later(self.idle_seconds, self.give_up)

    def give_up(self) -> None:
        """Close the connection unless it is being answered, or is now a WebSocket, with its own limits."""
        if self.transport.get_protocol() is self and not self._is_answering:
            self.transport.close()

    def _may_parse(self, data: bytes) -> bool:
        return super()._may_parse(data) and self.transport.get_protocol() is self

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_idle(self) -> bool:
        """Whether no complete request with a key is being answered."""
        return not self._is_answering or self.cycle.more_body or not is_admitted(self.cycle.scope)

    def _find_place(self) -> None:
        others = [one for one in self.connections if one is not self and not one.transport.is_closing()]
        if len(others) < self.most:
            return
        by_address: dict[str, list[Any]] = defaultdict(list)
        for one in others:
            if one.is_idle:
                by_address[one.client[0] if one.client else ""].append(one)
        most = max(by_address.values(), key=len, default=[])
        closed = heapq.nsmallest(CLOSED_AT_ONCE, most, key=lambda one: one.idle_since)
        for one in closed:
            one.transport.abort()
        if not closed:
            self.app = self._answer_health
            if len(others) >= self.most + SPARE:
                self._refuse(full())

    def _refuse(self, error: ApiError) -> None:
        self.transport.write(raw_answer(error))
        self.transport.close()

    async def _answer_health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a connection beyond the limit: to a monitor the server must not seem dead."""
        error = full()
        refused = JSONResponse(error.body, error.status, error.headers)
        await (self.config.loaded_app if scope["path"] == "/health" else refused)(scope, receive, send)

    def handle_websocket_upgrade(self, *event: Any) -> None:
        if self.app == self._answer_health:
            self._refuse(full())
        else:
            super().handle_websocket_upgrade(*event)

    def send_400_response(self, _: str) -> None:
        """Refuse data that is not HTTP, unless an answer has begun; uvicorn calls this."""
        if not self._is_answering:
            message = f"this is not an HTTP request with a head of at most {HEAD_BYTES // 1024} KiB: send one"
            self.transport.write(raw_answer(ApiError(400, message, headers={"Connection": "close"})))
        self._hold(self.transport.abort if self._is_answering else self.transport.close)


def _counted(name: str) -> Callable[..., None]:
    """Return a method that counts a frame, and calls uvicorn's method of this name."""

    def handle(self: Any, *event: Any) -> None:
        self._frames += 1
        getattr(super(BoundedMessages, self), name)(*event)

    return handle


class BoundedMessages(Stalling):
    """Mixin for uvicorn's WebSockets: limits the data before a complete message, and unsent pongs.

    A client beyond the limits is read no further, and disconnected a moment later.
    """

    most_bytes: float
    step_bytes = FRAMES_BYTES
    scope: Scope
    _silent_bytes = _frames = 0  # since the last complete message

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.idle_since = self.loop.time()
        super().connection_made(transport)

    @property
    def is_idle(self) -> bool:
        """Whether its first message, with a key if needed, has not come."""
        return not is_admitted(getattr(self, "scope", {}))

    def _may_parse(self, data: bytes) -> bool:
        if not super()._may_parse(data):
            return False
        self._silent_bytes += len(data)
        unsent = self.transport.get_write_buffer_size()
        if self._silent_bytes > self.most_bytes or self._frames > MOST_FRAMES or unsent > UNSENT_BYTES:
            self._hold(self.transport.abort)
        return not self._is_held

    # uvicorn calls these.
    handle_ping, handle_pong, handle_cont = map(_counted, ("handle_ping", "handle_pong", "handle_cont"))

    def send_receive_event_to_app(self) -> None:
        self._silent_bytes = self._frames = 0
        super().send_receive_event_to_app()


def http_protocol(limits: Limits, most: int) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with limits and for ``most`` connections, including WebSockets."""
    values = {"idle_seconds": limits.idle_seconds, "stalled_seconds": limits.seconds, "most": most}
    return type("HTTPProtocol", (Impatient, H11Protocol), values)


def websocket_protocol(limits: Limits) -> type[asyncio.Protocol]:
    base: Any = auto.AutoWebSocketsProtocol  # its type is that of a function
    # Older versions of uvicorn do not report complete messages.
    counts = hasattr(base, "send_receive_event_to_app")
    most_bytes = MESSAGE_TIMES * limits.body_bytes if counts else math.inf
    values = {"stalled_seconds": limits.seconds, "most_bytes": most_bytes}
    return type("WebSocketProtocol", (BoundedMessages, base), values)


class Seldom(logging.Filter):
    """Logs a message with ``words`` once a second, without its traceback: strangers must not fill a disk.

    asyncio logs each connection that it cannot accept, uvicorn each invalid request.
    """

    def __init__(self, words: str):
        super().__init__()
        self._words, self._passed = words, -REPEATED_S

    def filter(self, record: logging.LogRecord) -> bool:
        if self._words not in record.getMessage():
            return True
        now = time.monotonic()
        if now - self._passed < REPEATED_S:
            return False
        self._passed, record.exc_info = now, None
        return True


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

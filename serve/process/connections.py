"""Bound connections: their number, the length of a request's head, and idle or stalled time.

uvicorn waits for ever, httptools accepts heads of any length, and neither counts WebSockets. These are mixins for
uvicorn's protocols, with h11 and httptools.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from ..api.errors import ApiError
from ..api.guard import is_admitted
from ..api.options import Limits

HEAD_BYTES = 64 * 1024  # of a request's line and headers, or of its trailers
STEP_BYTES = 16 * 1024  # parsed between two checks of the head's length
SPARE = 16  # connections beyond the limit, which get only /health
CLOSED_AT_ONCE = 16  # idle connections, to make room for another
HEALTH = "/health"
UNSENT_BYTES = 1 << 20  # answers to pings that a WebSocket's client does not read
MESSAGE_TIMES = 4  # longest messages that a WebSocket's client may send before one is complete
# Pings, pongs and fragments from a WebSocket's client between messages. Each costs as much as a kilobyte of text.
MOST_FRAMES = 1000
FRAMES_BYTES = 1024  # parsed between two checks of the frames' number
ACCEPT_FAILED = "socket.accept() out of system resource"  # asyncio's words
NO_REQUEST = "Invalid HTTP request received."  # uvicorn's
REPEATED_S = 1.0
HELD_S = 1.0  # until a connection ends that was not HTTP


def full() -> ApiError:
    headers = {"Retry-After": "2", "Connection": "close"}
    return ApiError(503, "the server has as many connections as it takes: try again", headers=headers)


def raw_answer(error: ApiError) -> bytes:
    body = json.dumps(error.body).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
    head = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*head, "", ""]).encode() + body


Uvicorns: Any = asyncio.Protocol  # a protocol of uvicorn's is mixed in: its methods are not known here


class Stalling(Uvicorns):
    """Mixin for uvicorn's protocols: disconnects a client that stops reading; not even an error can be sent to it."""

    stalled_seconds: float
    loop: asyncio.AbstractEventLoop
    transport: Any
    _stalled: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to wait for the client: nothing more fits into the buffers."""
        super().pause_writing()
        self._go_on()
        self._stalled = self.loop.call_later(self.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    def _go_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()


class Impatient(Stalling):
    """Closes idle HTTP connections, and bounds the number of all.

    If another connection needs a place, the address with most idle connections loses its longest idle ones. If none
    is idle, SPARE more are accepted, which get only /health, and others are closed at once.
    """

    idle_seconds: float
    held_seconds: float = HELD_S
    most: int  # connections, WebSockets too
    connections: set[Any]  # uvicorn's, of all protocols
    config: Any
    app: Any
    flow: Any
    cycle: Any  # uvicorn's request and its answer; None before the first
    idle_since = 0.0
    _is_spare = False
    _is_held = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request, if there is a place."""
        super().connection_made(transport)
        self._watch = self._wait()
        if len(self.connections) > self.most:
            self._find_place()

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request; uvicorn calls this after each answer."""
        super().on_response_complete()
        self._watch.cancel()
        self._watch = self._wait()

    def _wait(self) -> asyncio.TimerHandle:
        self.idle_since = self.loop.time()
        return self.loop.call_later(self.idle_seconds, self.give_up)

    def give_up(self) -> None:
        """Close the connection unless it is being answered, or is a WebSocket now, with limits of its own."""
        if self.transport.get_protocol() is self and not self._is_answering:
            self.transport.close()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_idle(self) -> bool:
        """Whether no complete request of an admitted client is being answered."""
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
            self._is_spare, self.app = True, self._answer_health
            if len(others) >= self.most + SPARE:
                self._refuse(full())

    def _refuse(self, error: ApiError) -> None:
        self.transport.write(raw_answer(error))
        self.transport.close()

    async def _answer_health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a connection beyond the limit: a monitor must not take the server for dead."""
        error = full()
        refused = JSONResponse(error.body, error.status, error.headers)
        await (self.config.loaded_app if scope["path"] == HEALTH else refused)(scope, receive, send)

    def handle_websocket_upgrade(self, *event: Any) -> None:
        """Pass a connection on to the WebSocket protocol, unless it is one too many."""
        if self._is_spare:
            self._refuse(full())
        else:
            super().handle_websocket_upgrade(*event)

    def send_400_response(self, _: str) -> None:
        """Answer what is not HTTP, unless an answer has begun; uvicorn calls this."""
        if not self._is_answering:
            message = f"this is not an HTTP request with a head of at most {HEAD_BYTES // 1024} KiB: send one"
            self.transport.write(raw_answer(ApiError(400, message, headers={"Connection": "close"})))
        self._hold()

    def _hold(self) -> None:
        """Stop reading, and close a moment later: a client that reconnects in a loop has to wait for it."""
        self._is_held = True
        self.flow.pause_reading()
        end = self.transport.abort if self._is_answering else self.transport.close
        self.loop.call_later(self.held_seconds, end)

    def data_received(self, data: bytes) -> None:
        """Parse in steps: a parser checks a head's length only after all of its input."""
        for start in range(0, len(data), STEP_BYTES):
            if self._is_held or self.transport.is_closing() or self.transport.get_protocol() is not self:
                return
            self._parse(data[start : start + STEP_BYTES])

    def _parse(self, data: bytes) -> None:
        super().data_received(data)


class BoundedHeads(Impatient):
    """The same for httptools, which has no limit for a head: counts the bytes since its last event."""

    _silent_bytes = 0

    def _parse(self, data: bytes) -> None:
        self._silent_bytes += len(data)
        super()._parse(data)
        if self._silent_bytes > HEAD_BYTES and not (self._is_held or self.transport.is_closing()):
            self.send_400_response("")

    def on_headers_complete(self) -> None:
        self._silent_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._silent_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a body is complete, with its trailers."""
        self._silent_bytes = 0
        super().on_message_complete()


def _counted(name: str) -> Callable[..., None]:
    def handle(self: BoundedMessages, *event: Any) -> None:
        self._frames += 1
        getattr(super(BoundedMessages, self), name)(*event)

    return handle


class BoundedMessages(Stalling):
    """Mixin for uvicorn's WebSockets: bounds what a client sends before a message is complete, and unsent pongs.

    A client that exceeds this is read no further, and disconnected a moment later, as for what is not HTTP.
    """

    held_seconds: float = HELD_S
    most_bytes: float
    scope: Scope
    idle_since = 0.0
    _silent_bytes = _frames = 0
    _is_held = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.idle_since = self.loop.time()
        super().connection_made(transport)

    @property
    def is_idle(self) -> bool:
        """Whether its first message has not come, with the key if there is one."""
        return not is_admitted(getattr(self, "scope", {}))

    def data_received(self, data: bytes) -> None:
        """Parse frames in steps, while the client reads what is sent to it."""
        for start in range(0, len(data), FRAMES_BYTES):
            part = data[start : start + FRAMES_BYTES]
            self._silent_bytes += len(part)
            unsent = self.transport.get_write_buffer_size()
            if self._silent_bytes > self.most_bytes or self._frames > MOST_FRAMES or unsent > UNSENT_BYTES:
                self._hold()
            if self._is_held or self.transport.is_closing():
                return
            super().data_received(part)

    def _hold(self) -> None:
        if not self._is_held:
            self._is_held = True
            self.transport.pause_reading()
            self.loop.call_later(self.held_seconds, self.transport.abort)

    # uvicorn calls these.
    handle_ping, handle_pong, handle_cont = map(_counted, ("handle_ping", "handle_pong", "handle_cont"))

    def send_receive_event_to_app(self) -> None:
        """Note that a message is complete; uvicorn calls this."""
        self._silent_bytes = self._frames = 0
        super().send_receive_event_to_app()


def http_protocol(limits: Limits, most: int) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with limits; ``most`` connections, including WebSockets."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    values = {"idle_seconds": limits.idle_seconds, "stalled_seconds": limits.seconds, "most": most}
    counts = hasattr(AutoHTTPProtocol, "on_headers_complete")
    return type("HTTPProtocol", (BoundedHeads if counts else Impatient, AutoHTTPProtocol), values)


def websocket_protocol(limits: Limits) -> type[asyncio.Protocol]:
    from uvicorn.protocols.websockets import auto

    base: Any = auto.AutoWebSocketsProtocol  # its type is that of a function
    # Earlier versions of uvicorn do not say when a message is complete.
    counts = hasattr(base, "send_receive_event_to_app")
    most_bytes = MESSAGE_TIMES * limits.body_bytes if counts else math.inf
    values = {"stalled_seconds": limits.seconds, "most_bytes": most_bytes}
    return type("WebSocketProtocol", (BoundedMessages, base), values)


class Seldom(logging.Filter):
    """Lets a message with ``words`` pass once a second, without its traceback: strangers must not fill a disk.

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

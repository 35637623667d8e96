"""Give each request an id, in its answer and in the log, and optionally log each request."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..api.errors import ApiError, fault, shutting_down
from ..logs import request_id

log = logging.getLogger(__name__)
RawHeaders = Sequence[tuple[bytes, bytes]]

ID_HEADER = "x-request-id"
CLEAN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
LONGEST_PATH = 100
STARTS = ("http.response.start", "websocket.accept")
COMPLETE, LEFT, BROKEN_OFF, FAILED = "complete", "client left", "broken off", "failed"
CLIENT_LEFT = 499  # before there was a status


class RequestLog:
    """The outermost ASGI middleware: adds an id and ``headers`` to each answer, also after a failure or at the end."""

    def __init__(self, app: ASGIApp, headers: RawHeaders = (), writes: bool = False):
        self._app, self._headers, self._writes = app, headers, writes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, sent = time.perf_counter(), Headers(scope=scope).get(ID_HEADER, "")
        name = sent if CLEAN_ID.fullmatch(sent) else f"req_{secrets.token_hex(8)}"
        seen = _Exchange(name, receive, send, self._headers)
        before = request_id.set(seen.name)
        try:
            await self._app(scope, seen.receive, seen.send)
        except asyncio.CancelledError:
            await seen.fail(scope, shutting_down())
            raise
        except Exception as error:
            await seen.fail(scope, fault(error))
            seen.ended = FAILED
            raise
        finally:
            request_id.reset(before)
            if self._writes:
                # It may contain line ends and escapes.
                path = scope["path"][:LONGEST_PATH].encode("unicode_escape").decode()
                log.info(
                    "%s %s %s %s, %.3f s, %s",
                    *(seen.name, scope.get("method", "WS"), path),
                    *(seen.status or CLIENT_LEFT, time.perf_counter() - began, seen.ended),
                )


@dataclass
class _Exchange:
    name: str  # the request's id
    from_client: Receive
    to_client: Send
    headers: RawHeaders
    status: int = 0  # of the answer, or a WebSocket's close code; 0 before
    ended: str = BROKEN_OFF

    async def receive(self) -> Message:
        message = await self.from_client()
        if message["type"] == "http.disconnect" and self.ended != COMPLETE:
            self.ended = LEFT
        elif message["type"] == "websocket.disconnect":
            self.status, self.ended = message.get("code", 0), LEFT
        return message

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind in STARTS:
            own = ((ID_HEADER.encode(), self.name.encode()), *(self.headers if kind == STARTS[0] else ()))
            message = {**message, "headers": [*message.get("headers", ()), *own]}
            self.status = message.get("status", self.status)
        await self.to_client(message)
        if kind == "http.response.body" and not message.get("more_body", False):
            self.ended = COMPLETE
        elif kind == "websocket.close":
            self.status, self.ended = message.get("code", 1000), COMPLETE

    async def fail(self, scope: Scope, error: ApiError) -> None:
        """Answer a request with an error, unless its answer has begun."""
        if scope["type"] == "http" and not self.status:
            await JSONResponse(error.body, error.status, error.headers)(scope, self.receive, self.send)

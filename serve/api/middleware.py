"""ASGI middleware: an id for each request and the access log, then the checks of host, origin and key."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import time
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from ..terminal.console import request_id
from .errors import ApiError, fault, shutting_down
from .options import KEY_VARIABLE, Access, why_refused

log = logging.getLogger(__name__)

ID_HEADER = "x-request-id"
CLEAN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
LONGEST_PATH = 100
STARTS = ("http.response.start", "websocket.accept")
COMPLETE, LEFT, BROKEN_OFF, FAILED = "complete", "client left", "broken off", "failed"
CLIENT_LEFT = 499  # before there was a status
KEYED = ("/v1/", "/metrics")  # the page, /health and /ready need no key
LISTS = ("/v1/audio/voices", "/v1/audio/models")  # Open WebUI reads them without one
WS_REFUSED = 1008
NOSNIFF = (b"x-content-type-options", b"nosniff")
WRONG_KEY_S = 0.3  # the delay of the answer to a wrong key: nobody can try keys fast
ADMITTED = "morph_tts_admitted"
# Headers of answers, beside those of HTTP.
HEADERS = {
    "x-request-id": "the client's own, or another",
    "x-speech-seed": "of the line",
    "x-speech-seq-groups": "of the line",
    "x-speech-sample-rate": "in Hz",
    "x-speech-ignored": "fields that this checkpoint cannot follow, or that were removed",
    "x-speech-ended": "how the take ended, with stream false",
}


class RequestLog:
    """ASGI middleware: adds an id to each answer, also after a failure or at the end, and logs it if it ``writes``."""

    def __init__(self, app: ASGIApp, writes: bool = False):
        self._app, self._writes = app, writes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began, sent = time.perf_counter(), Headers(scope=scope).get(ID_HEADER, "")
        name = sent if CLEAN_ID.fullmatch(sent) else f"req_{secrets.token_hex(8)}"
        seen = _Exchange(name, receive, send)
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
                asked, status = f"{scope.get('method', 'WS')} {path}", seen.status or CLIENT_LEFT
                log.info("%s %s %s, %.3f s, %s", seen.name, asked, status, time.perf_counter() - began, seen.ended)


@dataclass
class _Exchange:
    name: str  # the request's id
    from_client: Receive
    to_client: Send
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
            own = (ID_HEADER.encode(), self.name.encode()), NOSNIFF
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


class AccessGuard:
    """ASGI middleware: refuses other sites, unknown hosts and missing keys."""

    def __init__(self, app: ASGIApp, access: Access):
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        error = self._refuse(scope, headers)
        if scope["type"] == "websocket":
            refused = WebSocketClose(WS_REFUSED, error.message) if error else None
            await (refused or self._app)(scope, receive, send)
            return
        if error is not None:
            if error.status == 401 and "authorization" in headers:
                await slow_down()
            await JSONResponse(error.body, error.status, error.headers)(scope, receive, send)
        else:
            admit(scope)
            # FastAPI's routes know no HEAD; uvicorn, which sees its own scope, sends no body.
            method = "GET" if scope["method"] == "HEAD" else scope["method"]
            await self._app({**scope, "method": method}, receive, send)

    def _refuse(self, scope: Scope, headers: Headers) -> ApiError | None:
        if (hosts := len(headers.getlist("host"))) > 1:
            return ApiError(400, f"the request has {hosts} Host headers: send one")
        if why := why_refused(headers, self._access.hosts, self._access.origin):
            return ApiError(403, why)
        # A page cannot give a WebSocket headers: that route asks for the key in its first message.
        if (
            scope["type"] == "websocket"
            or not scope["path"].startswith(KEYED)
            or (self._access.open_lists and scope["method"] == "GET" and scope["path"] in LISTS)
        ):
            return None
        return None if may_pass(self._access, headers) else unauthorized()


def allow_site(app: ASGIApp, origin: str) -> ASGIApp:
    """Return an application whose answers the pages of another site may read, or those of all sites ("*")."""
    # OpenAI's client for browsers sends a dozen headers of its own.
    return CORSMiddleware(
        app, [origin], ("GET", "POST", "DELETE"), ["*"], expose_headers=(*HEADERS, "retry-after"), max_age=600
    )


def may_pass(access: Access, headers: Headers, key: object = None) -> bool:
    """Return whether a request has the key, in its headers or as ``key``; True for a server without a key."""
    scheme, _, sent = headers.get("authorization", "").partition(" ")
    candidates = [sent.strip() if scheme.lower() == "bearer" else "", key if isinstance(key, str) else ""]
    wanted = access.key.encode()
    return not wanted or any(hmac.compare_digest(one.encode("utf-8", "replace"), wanted) for one in candidates)


async def slow_down() -> None:
    """Delay the sender of a wrong key. Others are served meanwhile, if necessary in place of its connection."""
    await asyncio.sleep(WRONG_KEY_S)


def admit(scope: Scope) -> None:
    """Admit a request or a WebSocket: its connection is no longer closed in favour of others."""
    scope.setdefault("state", {})[ADMITTED] = True


def is_admitted(scope: Scope) -> bool:
    return bool(scope.get("state", {}).get(ADMITTED))


def unauthorized() -> ApiError:
    message = f"the key is missing or wrong: send Authorization: Bearer KEY, the server's {KEY_VARIABLE}"
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})

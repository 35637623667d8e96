"""Admission: host, origin and key are checked before any route sees a request."""

from __future__ import annotations

import asyncio
import hmac

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from .errors import ApiError
from .options import KEY_VARIABLE, Access
from .request_checks import why_refused

KEYED = ("/v1/", "/metrics")  # the page, /health and /ready need no key
LISTS = ("/v1/audio/voices", "/v1/audio/models")  # Open WebUI reads them without one
WS_REFUSED = 1008
PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, DELETE",
    # OpenAI's client for browsers sends a dozen headers of its own; "*" does not stand for the first one.
    "Access-Control-Allow-Headers": "authorization, *",
    "Access-Control-Max-Age": "600",
}
WRONG_KEY_S = 0.3  # the delay of the answer to a wrong key: nobody can try keys fast
ADMITTED = "morph_tts_admitted"
SHOWN = (
    "x-request-id, x-speech-seed, x-speech-seq-groups, x-speech-sample-rate, x-speech-ended, x-speech-ignored, "
    "retry-after"
)


class AccessGuard:
    """ASGI middleware: refuses other sites, unknown hosts and missing keys; answers CORS preflights of the origin."""

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
        elif scope["method"] == "OPTIONS":
            await JSONResponse({}, headers=PREFLIGHT)(scope, receive, send)
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
            or scope["method"] == "OPTIONS"
            or not scope["path"].startswith(KEYED)
            or (self._access.open_lists and scope["method"] == "GET" and scope["path"] in LISTS)
        ):
            return None
        return None if may_pass(self._access, headers) else unauthorized()


def answer_headers(origin: str | None) -> list[tuple[bytes, bytes]]:
    """Return the headers of all answers; ``origin``: another site whose pages may read them."""
    own = {"x-content-type-options": "nosniff"}
    if origin is not None:
        own |= {
            "access-control-allow-origin": origin,
            "vary": "origin",
            "access-control-expose-headers": SHOWN,
        }
    return [(name.encode(), value.encode()) for name, value in own.items()]


def may_pass(access: Access, headers: Headers, key: object = None) -> bool:
    """Return whether a request has the key, in its headers or as ``key``; True for a server without a key."""
    scheme, _, sent = headers.get("authorization", "").partition(" ")
    candidates = [sent.strip() if scheme.lower() == "bearer" else "", key if isinstance(key, str) else ""]
    return not access.key or any(
        hmac.compare_digest(one.encode("utf-8", "replace"), access.key.encode()) for one in candidates
    )


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

"""Errors of the API, in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...morph.batch.speech import BatchClosed

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """An error for a client: a sentence with the fix; ``code`` is a short name for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else TYPES.get(self.status, "invalid_request_error")
        param = None if self.param is None else _encodable(self.param)
        message = _encodable(self.message)
        return {"error": {"message": message, "type": kind, "param": param, "code": self.code}}


@contextmanager
def refusing(param: str | None = None, before: str = "") -> Iterator[None]:
    """Turn a ValueError into ApiError 400 of a field, with words before its own."""
    try:
        yield
    except ValueError as error:
        raise ApiError(400, f"{before}{error}", param) from error


def shutting_down() -> ApiError:
    return ApiError(503, "the server is shutting down: try again", headers={"Retry-After": "5"})


def fault(error: Exception) -> ApiError:
    """Return the error of a server fault, without details."""
    return ApiError(500, f"the server failed ({type(error).__name__}): its log says why")


def as_api_error(error: Exception) -> ApiError:
    """Return an engine error as clients see it: bad input with its message, a failure without details."""
    if isinstance(error, ValueError):
        return ApiError(400, str(error), "input")
    if isinstance(error, BatchClosed):
        return shutting_down()
    return ApiError(500, f"speaking failed ({type(error).__name__}): the server's log says why", code="engine_failed")


def _encodable(text: str) -> str:
    """Return a client's text as valid UTF-8: half a surrogate pair becomes an escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")

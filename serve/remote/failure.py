"""Errors of a server, and whether a retry may help."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...morph.batch.speech import OutOfService
from ..plain_text import one_line
from .reported import header_number
from .servers import Server, key_variable

TRY_AGAIN = (408, 429, 502, 503, 504)
BUSY = 429
NO_KEY, FORBIDDEN, NOT_FOUND, FAILED = 401, 403, 404, 500
NO_END = "codec EOS"  # vLLM-Omni's words for a line that did not end; another seed helps
LONGEST = 300  # characters of a server's words


@dataclass(frozen=True)
class Remedy:
    """A way to a successful retry."""

    again: bool = False  # the same request later
    after_s: float | None = None  # the wait that the server asks for
    new_seed: bool = False
    upload: bool = False  # upload the voice: the server does not know it (any more)
    ends_all: bool = False  # no line can be spoken: after the attempts the whole run ends
    listens: bool = True  # False if nothing listens at the address, as while a server starts


NONE, LATER, ENDS_ALL = Remedy(), Remedy(again=True), Remedy(ends_all=True)


class ServerGone(OutOfService, ConnectionError):
    """No line can be spoken at the server any more; the message is that of a ``Failure``."""


class Failure(Exception):
    """A failed attempt in one sentence: the server, and ``what`` with the fix. No control characters."""

    def __init__(self, server: Server, what: str, remedy: Remedy = NONE):
        super().__init__(one_line(f"server {server} {what}"))
        self.remedy = remedy

    def for_people(self) -> ConnectionError:
        error = (ServerGone if self.remedy.ends_all else ConnectionError)(str(self))
        error.__cause__ = self
        return error


def of_status(server: Server, status: int, body: Any, headers: Mapping[str, str]) -> Failure:
    """Return the failure of an answer other than 200; ``body`` is its JSON, or None."""
    words, code = read_error(body)
    said = f": {words}" if words else ""
    if status == NO_KEY:
        fix = f"set {key_variable(server.name)} in the environment and restart"
        return Failure(server, f"does not accept the key, or wants one: {fix}", ENDS_ALL)
    if status == FORBIDDEN:
        return Failure(server, f"refused this computer (403){said}", ENDS_ALL)
    if status in TRY_AGAIN:
        why = "is busy" if status == BUSY else f"could not answer ({status})"
        after = header_number(headers.get("Retry-After"))
        return Failure(server, why + said, Remedy(again=True, after_s=after))
    if status == NOT_FOUND and not words:
        return Failure(server, "has no /v1/audio/speech (404): correct its address", ENDS_ALL)
    if status == NOT_FOUND:
        return Failure(server, f"refused the line{said}", Remedy(upload=code == "voice_not_found"))
    if status == FAILED and body is None:  # from its proxy: a replica has died
        return Failure(server, "could not answer (500)", LATER)
    if status == FAILED and NO_END in words:
        return Failure(server, f"did not end the line{said}: try another seed", Remedy(new_seed=True))
    did = "failed at" if status >= FAILED else "refused"
    return Failure(server, f"{did} the line ({status}){said}")


def read_error(body: Any) -> tuple[str, str]:
    """Return message and code of an error: OpenAI's, a string (vLLM's 401), or FastAPI's ``detail``."""
    error = body.get("error", body.get("detail")) if isinstance(body, dict) else None
    code = error.get("code") if isinstance(error, dict) else ""
    words = error.get("message") if isinstance(error, dict) else error
    return one_line(str(words or ""))[:LONGEST], str(code or "")

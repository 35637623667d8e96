"""The voice library's HTTP routes: the page's panel lists, renames, describes, deletes, exports, imports voices.

The name in a request is looked up in the library's listing, and is checked if it becomes a new file's.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from aiohttp import web

from ...morph.voice.file import MOST_BYTES
from ...morph.voice.fits import list_presets
from ...morph.voice.library import VoiceLibrary

ROOT = "/morph/voices"
FILE_TYPE = "application/octet-stream"
MOST_JSON = 1 << 16  # bytes of a request that is no file
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Routes: TypeAlias = dict[tuple[str, str], Handler]  # by method and path
# The texts that a request's object must have, and the change that they are for.
CHANGES: dict[str, tuple[tuple[str, ...], Callable[..., dict[str, str]]]] = {
    "rename": (("name", "new"), lambda library, *texts: {"name": library.rename(*texts)}),
    "describe": (("name", "description"), lambda library, *texts: {"description": library.describe(*texts)}),
    "delete": (("name",), lambda library, name: {"name": library.delete(name)}),
}


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, why: str, status: int = 400):
        super().__init__(why)
        self.status = status


class VoiceRoutes:
    """Handlers for voices; ``open_library`` and ``checkpoints`` run in a thread: they look into folders."""

    def __init__(
        self,
        open_library: Callable[[], VoiceLibrary],
        checkpoints: Callable[[], dict[str, dict[str, Any]]],
    ):
        self._open_library, self._checkpoints = open_library, checkpoints
        self._one_change = asyncio.Lock()

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Answer all voices and recordings as ``VoiceLibrary.listing``, and the checkpoints' preset speakers."""

        def listed() -> dict[str, Any]:
            library, configs = self._open_library(), self._checkpoints()
            return {"voices": library.listing(configs), "presets": list_presets(configs)}

        return web.json_response(await asyncio.to_thread(listed), headers=HEADERS)

    def table(self) -> Routes:
        changes = {end: partial(self._change, *what) for end, what in CHANGES.items()} | {
            "import": self._import
        }
        read = {("GET", ROOT): self.show, ("GET", f"{ROOT}/file"): self.export}
        return {**read, **{("POST", f"{ROOT}/{end}"): one for end, one in changes.items()}}

    async def _import(self, request: web.Request) -> web.StreamResponse:
        """Import the voice file in the body under ``?name=``."""
        if request.content_type != FILE_TYPE:
            raise Refused(f"send the file as {FILE_TYPE}", 415)
        data = await _read_body(request, MOST_BYTES)
        if len(data) > MOST_BYTES:
            raise Refused(f"the file has more than {MOST_BYTES / 1e6:.0f} MB: it is no voice", 413)
        name = request.query.get("name", "")
        return await self._act(
            lambda library: {"name": library.take_in(Path(f"{name}.safetensors"), name, content=data)}
        )

    async def export(self, request: web.Request) -> web.StreamResponse:
        """Send the file of the voice ``?name=``."""
        try:
            name = request.query.get("name", "")
            data = await asyncio.to_thread(lambda: self._open_library().export(name))
        except ValueError as error:
            raise Refused(str(error), 404) from error
        except FileNotFoundError as error:
            raise Refused("the voice was deleted: choose another", 404) from error
        attachment = {"Content-Disposition": "attachment"}
        return web.Response(body=data, content_type=FILE_TYPE, headers=HEADERS | attachment)

    async def _change(
        self, keys: tuple[str, ...], act: Callable[..., dict[str, str]], request: web.Request
    ) -> web.StreamResponse:
        """Answer a request whose body is an object with texts under these keys."""
        body = await read_object(request)
        values = [body.get(key) for key in keys]
        if not all(isinstance(value, str) for value in values):
            raise Refused(f"{' and '.join(keys)}: send texts")
        return await self._act(lambda library: act(library, *values))

    async def _act(self, act: Callable[[VoiceLibrary], dict[str, str]]) -> web.StreamResponse:
        """Answer with what ``act`` does to the library, one request at a time."""
        try:
            async with self._one_change:
                done = await asyncio.to_thread(lambda: act(self._open_library()))
        except ValueError as error:
            raise Refused(str(error)) from error
        return web.json_response(done, headers=HEADERS)


async def read_object(request: web.Request) -> dict[str, Any]:
    """Return the JSON object in a request's body, {} for other JSON; ``Refused`` for anything else."""
    check_json(request)
    try:
        body = json.loads(await _read_body(request, MOST_JSON))
    except (ValueError, RecursionError) as error:
        raise Refused("the body is not JSON") from error
    return body if isinstance(body, dict) else {}


def check_json(request: web.Request) -> None:
    """Refuse what pages of other sites could send."""
    if request.content_type != "application/json":
        raise Refused("send JSON", 415)


async def _read_body(request: web.Request, most: int) -> bytes:
    """Return a request's body; of one with more than ``most`` bytes only the first ones, which are more too."""
    body = bytearray()
    async for block in request.content.iter_chunked(1 << 16):
        body += block
        if len(body) > most:
            break
    return bytes(body)

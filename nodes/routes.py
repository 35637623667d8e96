"""The pack's HTTP routes: streamed speech, cached lines, checkpoints, and the voice library.

The page's panel lists, renames, describes, deletes, exports and imports voices. The name in a request is looked up in
the library's listing, and is checked if it becomes a new file's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from aiohttp import web

from ..morph.voice.file import MOST_BYTES
from ..morph.voice.library import VoiceLibrary
from ..morph.voice.voice import list_presets
from ..serve.api.options import HOSTS_VARIABLE, listed_hosts, unlisted_host, why_refused
from .page.live import APP_KEY, SAMPLE_BYTES, PlayedSpeech, SpeechStore
from .voices.saved_voices import APP_KEY as SAVED_KEY
from .voices.saved_voices import SavedVoices

if TYPE_CHECKING:
    from ..morph.kept.cache import LineCache

log = logging.getLogger(__name__)

ROOT = "/morph/speech"
LINES_ROOT = "/morph/lines"
BLOCK = 1 << 16  # bytes per write
POLL_S = 0.02  # seconds between looks for new samples
VOICES_ROOT = "/morph/voices"
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


def add_routes(server: Any) -> None:
    """Add the routes to ComfyUI's ``PromptServer``, unless they are there."""
    from comfy.cli_args import args

    from .folders import checkpoint_labels, kept_lines, local_checkpoints, voice_library
    from .speaking.common import APP_KEY as DEFAULT_KEY
    from .speaking.common import DefaultModel

    if any(getattr(route, "path", "").startswith(ROOT) for route in server.routes):
        log.warning("another pack serves %s: speech does not play while it is generated", ROOT)
        return

    server.app[APP_KEY] = store = SpeechStore(server)
    server.app[SAVED_KEY] = SavedVoices()
    server.app[DEFAULT_KEY] = DefaultModel()
    server.add_on_prompt_handler(drop_nulls)

    async def show_checkpoints(_: web.Request) -> web.StreamResponse:
        """Answer ``{"labels": {value: label}}``: what the list of Load Qwen3-TTS Model shows for each value."""
        labels = await asyncio.to_thread(checkpoint_labels)  # it looks into folders
        return web.json_response({"labels": labels}, headers={"Cache-Control": "no-store"})

    cors = args.enable_cors_header
    routes = {
        **speech_routes(store, cors),
        **line_routes(kept_lines),
        ("GET", "/morph/checkpoints"): show_checkpoints,
        **VoiceRoutes(voice_library, local_checkpoints).table(),
    }
    for (method, path), handler in routes.items():
        server.routes.route(method, path)(guard(handler, cors))


def drop_nulls(request: dict[str, Any]) -> dict[str, Any]:
    """Remove null from the texts of the pack's nodes: ComfyUI makes "None" of it, which would be spoken."""
    prompt = request.get("prompt")
    for node in prompt.values() if isinstance(prompt, dict) else ():
        inputs = node.get("inputs") if isinstance(node, dict) else None
        if isinstance(inputs, dict) and None in inputs.values():
            texts = text_inputs().get(str(node.get("class_type")), ())
            node["inputs"] = {name: value for name, value in inputs.items() if value is not None or name not in texts}
    return request


def text_inputs() -> dict[str, list[str]]:
    from comfy_api.latest import io

    from . import NODES

    schemas = [one.define_schema() for one in NODES]
    return {one.node_id: [it.id for it in one.inputs if isinstance(it, io.String.Input)] for one in schemas}


def guard(handler: Handler, cors: str | None = None) -> Handler:
    """Return a handler behind the checks of origin and host; ``cors``: ComfyUI's ``--enable-cors-header``."""
    hosts = listed_hosts()

    async def checked(request: web.Request) -> web.StreamResponse:
        if why := why_refused(request.headers, hosts, cors):
            host = unlisted_host(request.headers, hosts)
            named = {"unlisted_host": host, "variable": HOSTS_VARIABLE} if host else {}
            return web.json_response({"error": why, **named}, status=403)
        try:
            return await handler(request)
        except Refused as error:
            return web.json_response({"error": str(error)}, status=error.status, headers=HEADERS)

    return checked


def line_routes(open_cache: Callable[[], LineCache]) -> Routes:
    """Return the handlers for cached lines; ``open_cache`` is called in a thread, because it imports the engine."""

    async def answer(act: str, request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            check_json(request)
        try:
            size = await asyncio.to_thread(lambda: getattr(open_cache(), act)())
        except (OSError, ValueError) as error:
            log.warning("the cached lines cannot be read: %s", error)
            raise Refused("the cached lines cannot be read: see the server's log", 500) from error
        return web.json_response({"lines": size.lines, "bytes": size.bytes})

    # Both answer how many lines there are, or were.
    return {("GET", LINES_ROOT): partial(answer, "size"), ("POST", f"{LINES_ROOT}/clear"): partial(answer, "clear")}


def speech_routes(store: SpeechStore, cors: str | None = None) -> Routes:
    """Return the handlers for streamed speech; ``cors`` as for ``guard``."""
    # ComfyUI's CORS middleware comes too late for a stream.
    origin = {"Access-Control-Allow-Origin": cors} if cors else {}
    headers = {**HEADERS, "X-Accel-Buffering": "no", **origin}

    async def listen(request: web.Request) -> web.StreamResponse:
        """Read ``{"client": id, "wanted": bool}``: whether a page wants its runs streamed."""
        body = await read_object(request)
        client, wanted = body.get("client"), body.get("wanted")
        if not isinstance(client, str) or not 0 < len(client) <= 64 or not isinstance(wanted, bool):
            raise Refused("client is a short text, wanted true or false")
        store.listen(client, wanted)
        return web.json_response({})

    async def show(request: web.Request) -> web.StreamResponse:
        """Answer the streams of a page (``?client=``), after it has lost its socket."""
        streams = store.of_client(request.query.get("client", ""))
        return web.json_response([one.describe() for one in streams], headers=headers)

    async def read(request: web.Request) -> web.StreamResponse:
        """Send the samples of a stream from ``?from=`` on, until its end."""
        speech = store.find(request.match_info["stream"])
        start = request.query.get("from", "0")
        if speech is None:
            raise Refused("there is no such speech, or it is over", 404)
        if not start.isascii() or not start.isdigit() or len(start) > 12:
            raise Refused("from is a number of samples")
        response = web.StreamResponse(headers=headers)
        response.content_type = "application/octet-stream"
        await response.prepare(request)
        try:
            await _send(speech, int(start) * SAMPLE_BYTES, request, response)
        except ConnectionError:
            log.debug("a listener has left")
        return response

    return {("POST", f"{ROOT}/listen"): listen, ("GET", ROOT): show, ("GET", f"{ROOT}/{{stream}}"): read}


async def _send(speech: PlayedSpeech, position: int, request: web.Request, response: web.StreamResponse) -> None:
    """Write a stream's bytes as they come; return at its end, or when the reader has left."""
    while request.transport is not None and not request.transport.is_closing():
        block, position, ended = speech.read(position, BLOCK)
        if block:
            await response.write(block)
        elif ended:
            await response.write_eof()
            return
        else:
            await asyncio.sleep(POLL_S)


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, why: str, status: int = 400):
        super().__init__(why)
        self.status = status


class VoiceRoutes:
    """Handlers for voices; ``open_library`` and ``checkpoints`` run in a thread: they look into folders."""

    def __init__(self, open_library: Callable[[], VoiceLibrary], checkpoints: Callable[[], dict[str, dict[str, Any]]]):
        self._open_library, self._checkpoints = open_library, checkpoints
        self._one_change = asyncio.Lock()

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Answer all voices and recordings as ``VoiceLibrary.listing``, and the checkpoints' preset speakers."""

        def listed() -> dict[str, Any]:
            library, configs = self._open_library(), self._checkpoints()
            return {"voices": library.listing(configs), "presets": list_presets(configs)}

        return web.json_response(await asyncio.to_thread(listed), headers=HEADERS)

    def table(self) -> Routes:
        changes = {end: partial(self._change, *what) for end, what in CHANGES.items()} | {"import": self._import}
        read = {("GET", VOICES_ROOT): self.show, ("GET", f"{VOICES_ROOT}/file"): self.export}
        return {**read, **{("POST", f"{VOICES_ROOT}/{end}"): one for end, one in changes.items()}}

    async def _import(self, request: web.Request) -> web.StreamResponse:
        """Import the voice file in the body under ``?name=``."""
        if request.content_type != FILE_TYPE:
            raise Refused(f"send the file as {FILE_TYPE}", 415)
        data = await _read_body(request, MOST_BYTES)
        if len(data) > MOST_BYTES:
            raise Refused(f"the file has more than {MOST_BYTES / 1e6:.0f} MB: it is no voice", 413)
        name = request.query.get("name", "")
        path = Path(f"{name}.safetensors")
        return await self._act(lambda library: {"name": library.take_in(path, name, content=data)})

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
    try:
        return await request.content.readexactly(most + 1)
    except asyncio.IncompleteReadError as error:
        return error.partial

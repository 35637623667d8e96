"""The voice library's HTTP routes: the page's panel lists voices, renames, describes, deletes, exports, imports them.

A request names a voice; the name is looked up in the library's listing, and is checked where it becomes a new file's.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..voices.saved_voices import file_state

if TYPE_CHECKING:
    from ...morph.voice.library import VoiceLibrary

ROOT = "/morph/voices"
FILE_TYPE = "application/octet-stream"
MOST_JSON = 1 << 16  # bytes of a request that is no file
RECORDING = "recording"  # the kind of what is no voice file
CLONES = "a checkpoint that clones"  # what a recording fits
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class VoiceRoutes:
    """Handlers of the routes.

    Args:
        open_library: returns the library; it is called in a thread, because it may import the engine.
        checkpoints: returns the configs of the checkpoints on this machine, by the labels of Load Qwen3-TTS Model.
    """

    def __init__(
        self,
        open_library: Callable[[], VoiceLibrary],
        checkpoints: Callable[[], dict[str, dict[str, Any]]],
    ):
        self._open_library, self._checkpoints = open_library, checkpoints
        self._one_change = asyncio.Lock()

    async def show(self, request: web.Request) -> web.StreamResponse:
        """All voices: what each is, which checkpoints it fits, and one on this machine that does (or null).

        Recordings in the library are voices too. Beside them the preset speakers of the checkpoints on this machine.
        """
        return web.json_response(await asyncio.to_thread(self._list), headers=HEADERS)

    def _list(self) -> dict[str, Any]:
        library, configs = self._open_library(), self._checkpoints()
        listed = [*list_saved(library, configs), *list_recordings(library, configs)]
        return {"voices": sorted(listed, key=lambda one: one["name"]), "presets": list_presets(configs)}

    async def rename(self, request: web.Request) -> web.StreamResponse:
        """``{"name": voice, "new": name}``."""
        return await self._change(
            request, ("name", "new"), lambda library, name, new: {"name": library.rename(name, new)}
        )

    async def describe(self, request: web.Request) -> web.StreamResponse:
        """``{"name": voice, "description": text}``."""
        return await self._change(
            request,
            ("name", "description"),
            lambda library, name, text: {"description": library.describe(name, text)},
        )

    async def delete(self, request: web.Request) -> web.StreamResponse:
        """``{"name": voice}``."""

        def act(library: VoiceLibrary, name: str) -> dict[str, str]:
            library.delete(name)
            return {"name": name}

        return await self._change(request, ("name",), act)

    async def take_in(self, request: web.Request) -> web.StreamResponse:
        """A voice file as the body, and ``?name=``: import it under this name."""
        from ...morph.voice.file import MOST_BYTES

        if request.content_type != FILE_TYPE:
            return _refuse(f"send the file as {FILE_TYPE}", 415)
        data = await _read_body(request, MOST_BYTES)
        if data is None:
            return _refuse(f"the file has more than {MOST_BYTES / 1e6:.0f} MB: it is no voice", 413)
        name = request.query.get("name", "")
        async with self._one_change:
            return await _answer(lambda: {"name": import_bytes(self._open_library(), name, data)})

    async def export(self, request: web.Request) -> web.StreamResponse:
        """The file of the voice ``?name=``."""
        name = request.query.get("name", "")

        def read() -> bytes:
            library = self._open_library()
            library.load(name)
            return library.find(name).read_bytes()

        try:
            data = await asyncio.to_thread(read)
        except ValueError as error:
            return _refuse(str(error), 404)
        except FileNotFoundError:
            return _refuse("the voice was deleted: choose another", 404)
        attachment = {"Content-Disposition": "attachment"}
        return web.Response(body=data, content_type=FILE_TYPE, headers=HEADERS | attachment)

    async def _change(
        self, request: web.Request, keys: tuple[str, ...], act: Callable[..., dict[str, str]]
    ) -> web.StreamResponse:
        """Answer a request whose body is an object with texts under these keys, one request at a time."""
        if request.content_type != "application/json":
            return _refuse("send JSON", 415)
        body = await _read_body(request, MOST_JSON)
        try:
            said = json.loads(body or b"")
        except (ValueError, RecursionError):
            return _refuse("the body is not JSON", 400)
        values = [said.get(key) for key in keys] if isinstance(said, dict) else []
        if not values or not all(isinstance(value, str) for value in values):
            return _refuse(f"{' and '.join(keys)}: send texts", 400)
        async with self._one_change:
            return await _answer(lambda: act(self._open_library(), *values))


def list_saved(library: VoiceLibrary, configs: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the library's voices, each with a checkpoint that it fits (or None), or why it cannot be read."""
    return [about for name, path in library.voices().items() if (about := _about(name, path, configs))]


def _about(name: str, path: Path, configs: Mapping[str, dict[str, Any]]) -> dict[str, Any] | None:
    """Return what the list says of a voice file; None if it was deleted since the folder was listed."""
    from ...morph.voice.file import read_fields
    from ...morph.voice.fits import needs_of
    from ...morph.voice.library import describe_fields

    try:
        fields = read_fields(path)
        changed = str(path.stat().st_mtime_ns)
    except (ValueError, FileNotFoundError) as error:
        return {"name": name, "error": str(error)} if path.exists() else None
    needs = needs_of(fields)
    checkpoint = next((label for label, config in configs.items() if needs.are_met_by(config)), None)
    return describe_fields(name, fields) | {"checkpoint": checkpoint, "changed": changed}


def list_recordings(library: VoiceLibrary, configs: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the library's recordings, each with a checkpoint that can clone it (or None)."""
    from ...morph.voice.fits import Needs

    cloning = Needs("", "base")
    checkpoint = next((label for label, config in configs.items() if cloning.are_met_by(config)), None)
    about = {"kind": RECORDING, "fits": CLONES, "checkpoint": checkpoint}
    return [
        {"name": name, **about, "changed": str(state[0])}
        for name, path in library.recordings().items()
        if (state := file_state(path)) is not None  # else it was deleted since the folder was listed
    ]


def list_presets(configs: Mapping[str, dict[str, Any]]) -> list[dict[str, str]]:
    """Return the speakers of checkpoints: name, what it fits in words, and the first checkpoint that has it.

    Args:
        configs: of the checkpoints, by their labels.
    """
    from ...morph.voice.fits import Needs

    found: dict[tuple[str, str], dict[str, str]] = {}
    for label, config in configs.items():
        talker = config.get("talker_config")
        speakers = talker.get("spk_id") if isinstance(talker, dict) else None
        fits = Needs(str(config.get("tts_model_size")), str(config.get("tts_model_type"))).checkpoint
        for name in speakers if isinstance(speakers, dict) else ():
            found.setdefault((fits, name.lower()), {"name": name, "fits": fits, "checkpoint": label})
    return list(found.values())


def import_bytes(library: VoiceLibrary, name: str, data: bytes) -> str:
    """Import the bytes of a voice file; return the voice's name. Errors as ``VoiceLibrary.take_in``."""
    from ...morph.voice.library import SUFFIX, typed_name

    name = typed_name(name)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, name + SUFFIX)  # errors name the file
        source.write_bytes(data)
        return library.take_in(source, name)


async def _read_body(request: web.Request, most: int) -> bytes | None:
    """Return a request's body, or None if it has more than ``most`` bytes."""
    body = bytearray()
    async for block in request.content.iter_chunked(1 << 16):
        body += block
        if len(body) > most:
            return None
    return bytes(body)


async def _answer(act: Callable[[], dict[str, str]]) -> web.StreamResponse:
    try:
        return web.json_response(await asyncio.to_thread(act), headers=HEADERS)
    except ValueError as error:
        return _refuse(str(error), 400)


def _refuse(why: str, status: int) -> web.Response:
    return web.json_response({"error": why}, status=status, headers=HEADERS)

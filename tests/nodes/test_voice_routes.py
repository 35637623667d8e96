"""The routes of the voice library: what the page's panel asks, and what a request cannot reach."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")
import aiohttp
import torch
from aiohttp import web
from aiohttp.test_utils import TestServer
from qwen3_tts_morph.morph.voice import library as library_module
from qwen3_tts_morph.morph.voice.file import MOST_BYTES, save_voice
from qwen3_tts_morph.morph.voice.library import VoiceLibrary
from qwen3_tts_morph.morph.voice.voice import Voice, list_presets

from tests.nodes.package import load
from tests.patience import PATIENCE

routes = load("routes")

ANNA = Voice("x_vector", "0b6", "Anna", torch.arange(8) / 8)
OLD = Voice("design", "1b7", "Old", instruct="an old man")
CHECKPOINTS = {
    "my/0.6B": {"tts_model_size": "0b6", "tts_model_type": "base", "talker_config": {"spk_id": {}}},
    "demo": {
        "tts_model_size": "0b02",
        "tts_model_type": "base",
        "talker_config": {"spk_id": {"heart": 1, "emma": 2}},
    },
    "copy of demo": {
        "tts_model_size": "0b02",
        "tts_model_type": "base",
        "talker_config": {"spk_id": {"Heart": 1}},
    },
    "published": {
        "tts_model_size": "1b7",
        "tts_model_type": "custom_voice",
        "talker_config": {"spk_id": {"heart": 3}},
    },
}
BYTES = {"Content-Type": routes.FILE_TYPE}
Ask = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
def library(tmp_path: Path) -> VoiceLibrary:
    found = VoiceLibrary(tmp_path / "voices")
    save_voice(ANNA, found.folder / "Anna.safetensors", "calm")
    save_voice(OLD, found.folder / "Old.safetensors")
    save_voice(ANNA, tmp_path / "secret.safetensors")
    return found


def serve(library: VoiceLibrary, scenario: Callable[[Ask], Awaitable[None]]) -> None:
    async def run() -> None:
        app = web.Application()
        for (method, path), handler in routes.VoiceRoutes(lambda: library, lambda: CHECKPOINTS).table().items():
            app.router.add_route(method, path, routes.guard(handler))
        async with TestServer(app) as http, aiohttp.ClientSession() as session:

            async def ask(path: str = "", method: str = "GET", **options: Any) -> tuple[int, Any]:
                async with session.request(method, http.make_url(f"/morph/voices{path}"), **options) as answer:
                    is_json = answer.content_type == "application/json"
                    return answer.status, await (answer.json() if is_json else answer.read())

            await scenario(ask)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_the_list_says_what_a_voice_is_and_which_checkpoint_here_fits(library, tmp_path) -> None:
    async def scenario(ask: Ask) -> None:
        status, said = await ask()
        anna, cut, old = said["voices"]
        assert status == 200 and (anna["fits"], anna["checkpoint"]) == ("0.6B Base", "my/0.6B")
        assert (anna["description"], old["checkpoint"], old["fits"]) == ("calm", None, "1.7B VoiceDesign")
        assert cut["name"] == "Cut" and "checksum" in cut["error"]
        assert str(tmp_path) not in str(said)

    path = library.folder / "Cut.safetensors"
    data = library.find("Anna").read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    serve(library, scenario)


def test_the_speakers_of_the_checkpoints_here_are_listed_once_for_what_they_fit(library) -> None:
    async def scenario(ask: Ask) -> None:
        presets = (await ask())[1]["presets"]
        assert [(one["name"], one["fits"], one["checkpoint"]) for one in presets] == [
            ("heart", "demo voice", "demo"),
            ("emma", "demo voice", "demo"),
            ("heart", "1.7B CustomVoice", "published"),
        ]

    serve(library, scenario)


@pytest.mark.parametrize("config", [{}, {"talker_config": None}, {"talker_config": {"spk_id": ["heart"]}}])
def test_a_config_without_speakers_gives_none(config: dict[str, Any]) -> None:
    assert list_presets({"odd": config}) == []


def test_a_recording_in_the_folder_is_listed_with_a_checkpoint_that_clones(library: VoiceLibrary) -> None:
    async def scenario(ask: Ask) -> None:
        anna, berta, old = (await ask())[1]["voices"]
        assert (anna["name"], berta["name"], old["name"]) == ("Anna", "Berta", "Old")
        assert (berta["kind"], berta["checkpoint"]) == ("recording", "my/0.6B")
        assert berta["fits"] == "a checkpoint that clones" and berta["changed"]

    (library.folder / "Berta.wav").write_bytes(b"RIFF")
    serve(library, scenario)


def test_what_is_deleted_while_the_list_is_made_is_left_out(library, monkeypatch) -> None:
    async def scenario(ask: Ask) -> None:
        status, said = await ask()
        assert status == 200 and [one["name"] for one in said["voices"]] == ["Anna"]

    (library.folder / "Berta.wav").write_bytes(b"RIFF")
    found = library.sources()
    for name in ("Old", "Berta"):
        found[name].unlink()
    monkeypatch.setattr(VoiceLibrary, "sources", lambda _: found)
    serve(library, scenario)


def test_voices_are_renamed_described_and_deleted(library: VoiceLibrary) -> None:
    async def scenario(ask: Ask) -> None:
        assert await ask("/rename", "POST", json={"name": "Anna", "new": "Clara "}) == (
            200,
            {"name": "Clara"},
        )
        body = {"name": "Clara", "description": "low\nand calm"}
        assert await ask("/describe", "POST", json=body) == (200, {"description": "low and calm"})
        assert (await ask("/delete", "POST", json={"name": "Old"}))[0] == 200
        [left] = (await ask())[1]["voices"]
        assert (left["name"], left["description"]) == ("Clara", "low and calm")
        status, said = await ask("/delete", "POST", json={"name": "Anna"})
        assert status == 400 and said["error"] == "voice 'Anna' is not in the library: choose one of Clara"

    serve(library, scenario)


def test_an_exported_voice_can_be_imported(library: VoiceLibrary) -> None:
    async def scenario(ask: Ask) -> None:
        status, data = await ask("/file?name=Anna")
        assert status == 200 and data == library.find("Anna").read_bytes()
        sent = {"method": "POST", "data": data, "headers": BYTES}
        assert await ask("/import?name=Anna 2", **sent) == (200, {"name": "Anna 2"})
        status, said = await ask("/import?name=Old", **sent)
        assert status == 400 and said["error"].startswith("a voice named 'Old' already exists")
        assert list(library.voices()) == ["Anna", "Anna 2", "Old"]

    serve(library, scenario)


def test_a_voice_that_is_deleted_while_it_is_exported_is_not_found(library, monkeypatch) -> None:
    async def scenario(ask: Ask) -> None:
        status, said = await ask("/file?name=Anna")
        assert status == 404 and "was deleted" in said["error"] and str(library.folder) not in str(said)

    monkeypatch.setattr(library_module, "load_voice", lambda path: None)
    find = VoiceLibrary.find

    def found_and_deleted(self: VoiceLibrary, name: str) -> Path:
        path = find(self, name)
        path.unlink()
        return path

    monkeypatch.setattr(VoiceLibrary, "find", found_and_deleted)
    serve(library, scenario)


@pytest.mark.parametrize("name", ["../secret", "%2e%2e/secret", "/etc/passwd", "", "Nobody"])
def test_a_name_that_is_not_listed_reaches_no_file(library: VoiceLibrary, name: str, tmp_path: Path) -> None:
    async def scenario(ask: Ask) -> None:
        for path in (f"/file?name={name}", "/file"):
            assert (await ask(path))[0] == 404
        for path, more in (("rename", {"new": "x"}), ("describe", {"description": "x"}), ("delete", {})):
            status, said = await ask(f"/{path}", "POST", json={"name": name, **more})
            assert status == 400 and "is not in the library" in said["error"]

    serve(library, scenario)
    assert (tmp_path / "secret.safetensors").exists() and len(library.files()) == 2


@pytest.mark.parametrize("name", ["../x", "", "a/b", "CON", "x" * 100])
def test_an_import_cannot_leave_the_folder(library: VoiceLibrary, name: str, tmp_path: Path) -> None:
    async def scenario(ask: Ask) -> None:
        data = library.find("Anna").read_bytes()
        status, said = await ask("/import", "POST", params={"name": name}, data=data, headers=BYTES)
        assert status == 400 and "name" in said["error"]

    before = sorted(tmp_path.rglob("*"))
    serve(library, scenario)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("data", "status"), [(b"", 400), (b"\x80\x04.", 400), (b"\xff" * 100, 400), (bytes(MOST_BYTES + 1), 413)]
)
def test_a_file_that_is_no_voice_is_refused(library: VoiceLibrary, data: bytes, status: int) -> None:
    async def scenario(ask: Ask) -> None:
        answer, said = await ask("/import?name=New", "POST", data=data, headers=BYTES)
        assert answer == status and str(library.folder.parent) not in said["error"]

    serve(library, scenario)
    assert list(library.files()) == ["Anna", "Old"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"json": {}}, 400),
        ({"json": []}, 400),
        ({"json": {"name": 1}}, 400),
        ({"data": b"{", "headers": {"Content-Type": "application/json"}}, 400),
        ({"data": b"[" * 60_000, "headers": {"Content-Type": "application/json"}}, 400),
        ({"data": b'{"name": "Anna"}', "headers": {"Content-Type": "text/plain"}}, 415),
        ({"json": {"name": "Anna"}, "headers": {"Origin": "http://evil.example"}}, 403),
    ],
)
def test_a_request_that_is_not_the_pages_changes_nothing(library, options, status) -> None:
    async def scenario(ask: Ask) -> None:
        assert (await ask("/delete", "POST", **options))[0] == status

        if status in (403, 415):
            assert (await ask("/import?name=New", "POST", **options))[0] == status

    serve(library, scenario)
    assert "Anna" in library.files()

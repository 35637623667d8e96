"""Kept lines in ComfyUI: their bound, and the routes that show and remove them."""

import asyncio
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")
import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer
from qwen3_tts_morph.morph.kept.cache import LineCache

from tests.nodes.package import load
from tests.patience import PATIENCE

routes = load("routes")
LEFT = f"{'a' * 64}.line.safetensors"


@pytest.fixture
def kept_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    folders = SimpleNamespace(get_system_user_directory=lambda name: str(tmp_path / f"__{name}"))
    monkeypatch.setitem(sys.modules, "folder_paths", folders)
    return load("folders")


@pytest.mark.parametrize(("said", "megabytes"), [(None, 2048), ("", 2048), ("0", 0), (" 10 ", 10)])
def test_the_bound_is_read_from_the_environment(kept_lines, monkeypatch, said, megabytes) -> None:
    monkeypatch.delenv(kept_lines.SIZE_VARIABLE, raising=False)
    if said is not None:
        monkeypatch.setenv(kept_lines.SIZE_VARIABLE, said)
    assert kept_lines.most_megabytes() == megabytes


@pytest.mark.parametrize("said", ["-1", "1.5", "2 GB", "²", "9" * 10])
def test_a_bound_that_is_no_number_is_refused(kept_lines, monkeypatch, said) -> None:
    monkeypatch.setenv(kept_lines.SIZE_VARIABLE, said)
    with pytest.raises(ValueError, match=r"MORPH_TTS_CACHE_MB is .*: write a whole number of MB"):
        kept_lines.most_megabytes()


def serve(cache: LineCache, scenario) -> None:
    async def run() -> None:
        app = web.Application()
        for (method, path), handler in routes.line_routes(lambda: cache).items():
            app.router.add_route(method, path, routes.guard(handler))
        async with TestServer(app) as http, aiohttp.ClientSession() as session:
            await scenario(session, http)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_a_page_sees_what_is_kept_and_removes_it(tmp_path) -> None:
    async def scenario(session, http) -> None:
        async with session.get(http.make_url("/morph/lines")) as answer:
            assert await answer.json() == {"lines": 1, "bytes": 4}
        async with session.post(http.make_url("/morph/lines/clear"), json={}) as answer:
            assert await answer.json() == {"lines": 1, "bytes": 4}
        async with session.get(http.make_url("/morph/lines")) as answer:
            assert await answer.json() == {"lines": 0, "bytes": 0}

    (tmp_path / LEFT).write_bytes(b"four")
    (tmp_path / "mine").write_bytes(b"mine")
    serve(LineCache(tmp_path, 100), scenario)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_another_site_cannot_remove_lines(tmp_path) -> None:
    async def scenario(session, http) -> None:
        url = http.make_url("/morph/lines/clear")
        async with session.post(url, json={}, headers={"Origin": "http://evil.example"}) as answer:
            assert answer.status == 403 and "unlisted_host" not in await answer.json()
        async with session.post(url, json={}, headers={"Host": "studio.example:8188"}) as answer:
            said = await answer.json()
            assert answer.status == 403
            assert (said["unlisted_host"], said["variable"]) == ("studio.example", "MORPH_TTS_HOSTS")
        async with session.post(url, data="{}", headers={"Content-Type": "text/plain"}) as answer:
            assert answer.status == 415

    (tmp_path / LEFT).write_bytes(b"four")
    serve(LineCache(tmp_path, 100), scenario)
    assert (tmp_path / LEFT).exists()


def test_a_folder_that_cannot_be_read_is_said_without_its_path(tmp_path) -> None:
    async def scenario(session, http) -> None:
        async with session.get(http.make_url("/morph/lines")) as answer:
            assert answer.status == 500 and str(tmp_path) not in await answer.text()

    (tmp_path / "file").write_bytes(b"")
    serve(LineCache(tmp_path / "file", 100), scenario)

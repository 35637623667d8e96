"""Fixtures: a real ComfyUI server with this pack installed, and a browser that opens its page.

They need ``COMFYUI_DIR`` (``run_tests.py`` sets it). Without it, all tests here are skipped; without a Chromium, the
page tests are. The reason of such a skip starts with "not run".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # aiohttp and playwright may be missing when these tests are skipped
    from tests.comfy.graphs import Graph
    from tests.comfy.page import ComfyBrowser, ComfyPage
    from tests.comfy.server import ComfyServer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACK_NAME = "qwen3-tts-morph"  # with a hyphen, as in users' folder names


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("COMFYUI_DIR"):
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="not run: no ComfyUI (set COMFYUI_DIR, or use run_tests.py)"))


@pytest.fixture(scope="session")
def comfy_dir() -> Path:
    path = Path(os.environ["COMFYUI_DIR"])
    if not (path / "main.py").exists():
        raise FileNotFoundError(f"COMFYUI_DIR is {path}, which contains no main.py: set it to ComfyUI's own folder")
    return path


@pytest.fixture(scope="session")
def comfy_python() -> str:
    return os.environ.get("COMFYUI_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ComfyUI's base folder, which contains input, output, temp, models and custom_nodes."""
    return tmp_path_factory.mktemp("comfy")


@pytest.fixture(scope="session")
def model_folders(base_dir: Path) -> Path:
    """A folder that the pack searches for checkpoints; each checkpoint is one folder in it."""
    path = base_dir / "models" / "qwen-tts"
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture(scope="module")
def recordings(base_dir: Path, model_folders: Path) -> None:
    """Checkpoints, and the recordings that graphs of the tests name."""
    from tests.comfy import graphs

    graphs.place_checkpoints(model_folders)
    graphs.place_recordings(base_dir / "input")


@pytest.fixture(scope="module")
def own_files(base_dir: Path, model_folders: Path) -> None:
    """What workflows name: checkpoints and recordings."""
    from tests.comfy import graphs
    from tests.comfy.examples import place_own_files

    graphs.place_checkpoints(model_folders)
    place_own_files(base_dir / "input")


@pytest.fixture(scope="session")
def servers() -> list[ComfyServer]:
    """All servers that tests started."""
    return []


@pytest.fixture(autouse=True)
def revived(servers: list[ComfyServer]) -> Iterator[None]:
    """Start servers again that ended in a test: the next test finds them."""
    yield
    for server in servers:
        server.revive()


@pytest.fixture(scope="session")
def start_server(
    comfy_dir: Path, comfy_python: str, servers: list[ComfyServer]
) -> Iterator[Callable[..., ComfyServer]]:
    """Start another server: ``start_server(base_dir, front_end_root=..., page_settings=..., env=...)``."""
    from tests.comfy.server import ComfyServer

    with ExitStack() as running:

        def start(base_dir: Path, **options: Any) -> ComfyServer:
            server = ComfyServer(comfy_dir, base_dir, {PACK_NAME: ROOT}, comfy_python, **options)
            servers.append(running.enter_context(server))
            return server

        yield start


@pytest.fixture(scope="session")
def server(start_server: Callable[..., ComfyServer], base_dir: Path, model_folders: Path) -> ComfyServer:
    """The session's server, with the frontend that belongs to its ComfyUI."""
    return start_server(base_dir)


@pytest.fixture(scope="session")
def todays_server(start_server: Callable[..., ComfyServer], tmp_path_factory: pytest.TempPathFactory) -> ComfyServer:
    """A second server, with a newer frontend (``COMFYUI_FRONTEND``, a folder) and no models."""
    page = os.environ.get("COMFYUI_FRONTEND")
    if not page:
        pytest.skip("not run: no newer frontend (set COMFYUI_FRONTEND, or use run_tests.py)")
    return start_server(tmp_path_factory.mktemp("comfy_today"), front_end_root=Path(page))


@pytest.fixture(scope="session")
def chromium() -> str:
    from tests.comfy.page import find_chromium

    found = find_chromium()
    if not found:
        pytest.skip("not run: no Chromium (install it, or set CHROMIUM to its path)")
    return found


@pytest.fixture(scope="session")
def browser(chromium: str, pytestconfig: pytest.Config) -> Iterator[ComfyBrowser]:
    """The session's Chromium. With ``--all`` its pages take pictures."""
    from tests.comfy.page import ComfyBrowser

    with ComfyBrowser(chromium, pictures=pytestconfig.getoption("all")) as running:
        yield running


@pytest.fixture
def new_page(browser: ComfyBrowser) -> Iterator[Callable[..., ComfyPage]]:
    """Open a page: ``new_page(server)``, ``new_page(todays_server, nodes_2=True)``. It is closed after the test."""
    with ExitStack() as pages:
        yield lambda server, **options: pages.enter_context(browser.open(server, **options))


@pytest.fixture(scope="module")
def convert(browser: ComfyBrowser, server: ComfyServer) -> Iterator[Callable[[dict[str, Any]], Graph]]:
    """Convert a UI-format workflow into the graph that the page's Run button queues."""
    with browser.open(server) as page:
        yield lambda workflow: page.load(workflow)["api"]


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """The folder for pictures of pages, for a person to look at; git ignores it."""
    path = ROOT / "artifacts" / "screenshots"
    path.mkdir(parents=True, exist_ok=True)
    return path

"""Start a real ComfyUI server for tests, run prompts on it, and stop it again.

Nothing is written to the ComfyUI tree: models, custom_nodes, input, output, temp and user are all in a base folder
that belongs to the test.

    with ComfyServer(comfy_dir, base_dir, packs={"qwen3-tts-morph": repo}, python=comfy_python) as server:
        result = server.run({"1": {"class_type": "EmptyAudio", "inputs": {...}}, ...})
        result.files          # all files that the prompt saved or previewed
        result.events         # (type, data) pairs from the websocket, in order
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from qwen3_tts_morph.serve.process.server import free_ports

from tests.patience import PATIENCE

HOST = "127.0.0.1"
FINAL = {"execution_success", "execution_error", "execution_interrupted"}
BASE_FOLDERS = ("custom_nodes", "models", "input", "output", "temp", "user/default")
NOT_COPIED = (".git", ".envs", "artifacts", "__pycache__")
# No first-visit template dialog, no debug overlay and no minimap, so that screenshots show the graph; and no question
# before a workflow is cleared.
PAGE_SETTINGS = {
    "Comfy.TutorialCompleted": True,
    "Comfy.Graph.CanvasInfo": False,
    "Comfy.Minimap.Visible": False,
    "Comfy.ConfirmClear": False,
}
OFFLINE = {"PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}
# ComfyUI looks up the name by which a page was opened, at each request: without a name server that takes five seconds.
OFFLINE["RES_OPTIONS"] = "timeout:1 attempts:1"
# With a busy neighbour on the machine, tiny models are ten times slower on two threads than on one.
ON_CPU = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
# Python logs this of an exception that ends ComfyUI's only thread for prompts, which then wait forever.
WORKER_ENDED = re.compile(r"Exception in thread .*\(prompt_worker\)")


class ComfyError(RuntimeError):
    """The server did not start, or rejected a request; ``body`` is its JSON response."""

    def __init__(self, message: str, body: Any = None):
        super().__init__(message)
        self.body = body


@dataclass(frozen=True)
class OutputFile:
    """A file that a node reported; ``kind`` is its key in the node's ui ("audio", "images", ...)."""

    node_id: str
    kind: str
    filename: str
    subfolder: str
    type: str  # "output" or "temp"
    path: Path


@dataclass(frozen=True)
class Result:
    prompt_id: str
    status: str  # execution_success, execution_error or execution_interrupted
    error: dict[str, Any] | None  # the event's data: node_id, node_type, exception_type, exception_message, ...
    outputs: dict[str, dict[str, Any]]  # {node id: {ui key: [...]}}
    files: list[OutputFile]
    events: list[tuple[str, Any]] = field(repr=False, default_factory=list)
    previews: list[bytes] = field(repr=False, default_factory=list)

    @property
    def ok(self) -> bool:
        return self.status == "execution_success"

    def progress(self, node_id: str) -> list[tuple[float, float]]:
        """Return the (value, max) pairs that one node reported, in order."""
        return [(d["value"], d["max"]) for kind, d in self.events if kind == "progress" and d["node"] == node_id]

    def cached_nodes(self) -> set[str]:
        return {node for kind, d in self.events if kind == "execution_cached" for node in d["nodes"]}


class ComfyServer:
    """A ComfyUI process and its HTTP and websocket interface.

    It runs on the CPU, or on the GPU if ``gpu`` is set. ``packs`` maps a folder name in custom_nodes to the folder that
    is linked there. ``page_settings`` adds to the page's settings. ``front_end_root`` serves another build of the
    frontend.
    """

    def __init__(
        self,
        comfy_dir: Path,
        base_dir: Path,
        packs: Mapping[str, Path],
        python: Path | str = sys.executable,
        extra_args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        front_end_root: Path | None = None,
        page_settings: Mapping[str, Any] | None = None,
        gpu: bool = False,
    ):
        self.comfy_dir = comfy_dir.resolve()
        self.base_dir = base_dir.resolve()
        self.packs = packs
        self.python = str(python)
        self.extra_args = [
            *(["--front-end-root", str(front_end_root)] if front_end_root else []),
            *extra_args,
        ]
        self.gpu = gpu
        self.env = {**os.environ, **OFFLINE, **({} if gpu else ON_CPU), **(env or {})}
        self.page_settings = {**PAGE_SETTINGS, **(page_settings or {})}
        self.log_path = self.base_dir / "comfyui.log"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    # Life cycle

    def start(self, timeout: float = PATIENCE) -> ComfyServer:
        """Start the process and wait until it responds; ComfyError with its log if it does not.

        One that is started again has its address again: pages keep what they have read from it.
        """
        self._fill_base_dir()
        self.port = self.port or free_ports(1)[0]
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                self._command(),
                cwd=self.comfy_dir,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        threading.Thread(target=self._end_with_the_worker, args=(self.process,), daemon=True).start()
        try:
            self._wait_until_ready(timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def _end_with_the_worker(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the process when its prompt worker has ended, so that waiting tests fail at once."""
        while process.poll() is None:
            time.sleep(0.5)  # the traceback follows the line
            if WORKER_ENDED.search(self.log_tail(200)):
                process.kill()

    def revive(self) -> None:
        """Start the process again if it has ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            self.start()

    def _fill_base_dir(self) -> None:
        for name in BASE_FOLDERS:
            (self.base_dir / name).mkdir(parents=True, exist_ok=True)
        settings = self.base_dir / "user/default/comfy.settings.json"
        settings.write_text(json.dumps(self.page_settings), encoding="utf-8")
        for name, pack in self.packs.items():
            link_pack(pack.resolve(), self.base_dir / "custom_nodes" / name)

    def _command(self) -> list[str]:
        command = [self.python, "main.py", "--listen", HOST, "--port", str(self.port)]
        command += [] if self.gpu else ["--cpu"]
        command += ["--base-directory", str(self.base_dir), "--database-url", "sqlite:///:memory:"]
        # Without API nodes, ComfyUI also sends a Content-Security-Policy that keeps the page offline.
        return [*command, "--disable-api-nodes", "--disable-auto-launch", *self.extra_args]

    def _wait_until_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self._answers():
            if self.process is None or self.process.poll() is not None:
                raise ComfyError(f"ComfyUI exited while starting:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ComfyError(f"ComfyUI was not ready after {timeout} s:\n{self.log_tail()}")
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            self.get("/system_stats", timeout=30)
        except OSError:  # includes URLError
            return False
        return True

    def stop(self, timeout: float = 60) -> None:
        """Stop the process by its id: SIGTERM (background jobs ignore SIGINT), then SIGKILL."""
        process, self.process = self.process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> ComfyServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace") if self.log_path.exists() else ""

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log().splitlines()[-lines:])

    # HTTP

    def request(self, method: str, path: str, body: Any = None, timeout: float = PATIENCE) -> Any:
        """Return the response, decoded if it is JSON, else as bytes; ComfyError for an error status."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                raw, kind = response.read(), response.headers.get_content_type()
        except urllib.error.HTTPError as error:
            answer = decode(error.read())
            raise ComfyError(f"{method} {path} returned {error.code}: {answer}", answer) from None
        return json.loads(raw) if kind == "application/json" and raw else raw

    def get(self, path: str, timeout: float = PATIENCE) -> Any:
        return self.request("GET", path, timeout=timeout)

    def post(self, path: str, body: Any = None, timeout: float = PATIENCE) -> Any:
        return self.request("POST", path, {} if body is None else body, timeout=timeout)

    def object_info(self) -> dict[str, Any]:
        """Return all nodes with their inputs, as the page receives them."""
        return self.get("/object_info")

    def set_page_setting(self, name: str, value: Any) -> None:
        """Store a setting of the web page. It takes effect on pages opened afterwards."""
        self.post(f"/settings/{name}", value)

    def interrupt(self, prompt_id: str | None = None) -> None:
        """Interrupt a prompt, as the page's cancel button does."""
        self.post("/interrupt", {"prompt_id": prompt_id} if prompt_id else {})

    def free(self) -> None:
        """Ask ComfyUI to unload models and drop the node cache; its worker does so soon, or behind the next prompt."""
        self.post("/free", {"unload_models": True, "free_memory": True})

    def run_freed(self, graph: dict[str, Any]) -> Result:
        """Free, and run a graph without the node cache.

        A prompt may come before the worker has read the request to free; it reads it behind that prompt at the latest.
        So a graph that was still cached is run again.
        """
        self.free()
        result = self.run(graph)
        return self.run(graph) if result.cached_nodes() else result

    def download(self, file: OutputFile) -> bytes:
        """Download a file, as the page does."""
        return self.get("/view?" + urllib.parse.urlencode(file_query(file)))

    # Prompts

    def run(
        self,
        graph: dict[str, Any],
        timeout: float = PATIENCE,
        on_event: Callable[[str, Any], None] | None = None,
        extra_data: dict[str, Any] | None = None,
    ) -> Result:
        """Queue an API-format graph and wait until it ends; ComfyError if it is too slow, or any of it is rejected.

        ComfyUI runs what it does not reject, if that has an output node.
        """
        # In a separate thread: a test with an open playwright page has a running event loop in this one.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, self._run(graph, timeout, on_event, extra_data or {})).result()

    async def _run(
        self,
        graph: dict[str, Any],
        timeout: float,
        on_event: Callable[[str, Any], None] | None,
        extra_data: dict[str, Any],
    ) -> Result:
        client_id = uuid.uuid4().hex
        events: list[tuple[str, Any]] = []
        previews: list[bytes] = []

        async def follow(messages: aiohttp.ClientWebSocketResponse, prompt_id: str) -> None:
            async for message in messages:
                if message.type == aiohttp.WSMsgType.BINARY:
                    previews.append(message.data)
                elif message.type == aiohttp.WSMsgType.TEXT:
                    event = json.loads(message.data)
                    events.append((event["type"], event.get("data") or {}))
                    if on_event:
                        await asyncio.to_thread(on_event, *events[-1])
                    if event["type"] in FINAL and events[-1][1].get("prompt_id") == prompt_id:
                        return
            raise ComfyError(f"the websocket closed before prompt {prompt_id} finished:\n{self.log_tail()}")

        address = f"ws://{HOST}:{self.port}/ws?clientId={client_id}"
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=0) as messages,
        ):
            # ComfyUI requires this to be the first message on the socket.
            await messages.send_json({"type": "feature_flags", "data": {"supports_preview_metadata": True}})
            body = {"prompt": graph, "client_id": client_id, "extra_data": extra_data}
            queued = await asyncio.to_thread(self.post, "/prompt", body)
            prompt_id = queued["prompt_id"]
            if queued.get("node_errors"):
                await asyncio.to_thread(self._drop, prompt_id)
                raise ComfyError(f"ComfyUI refused a part of the graph: {queued['node_errors']}", queued)
            try:
                await asyncio.wait_for(follow(messages, prompt_id), timeout)
            except asyncio.TimeoutError:
                raise ComfyError(f"prompt {prompt_id} took longer than {timeout} s:\n{self.log_tail()}") from None
        status, last = events[-1]
        outputs = await asyncio.to_thread(self._outputs, prompt_id)
        error = last if status == "execution_error" else None
        return Result(prompt_id, status, error, outputs, self._files(outputs), events, previews)

    def _drop(self, prompt_id: str) -> None:
        """Take a prompt out of the queue, or stop it."""
        self.post("/queue", {"delete": [prompt_id]})
        self.post("/interrupt", {})

    def _outputs(self, prompt_id: str, timeout: float = PATIENCE) -> dict[str, Any]:
        # The history is written shortly after the last websocket event.
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            history = self.get(f"/history/{prompt_id}")
            if prompt_id in history:
                return history[prompt_id].get("outputs", {})
            time.sleep(0.05)
        raise ComfyError(f"no history for prompt {prompt_id}")

    def _files(self, outputs: dict[str, Any]) -> list[OutputFile]:
        files = []
        for node_id, ui in outputs.items():
            for kind, items in ui.items():
                for item in items if isinstance(items, list) else []:
                    if isinstance(item, dict) and "filename" in item:
                        files.append(self._file(node_id, kind, item))
        return files

    def _file(self, node_id: str, kind: str, item: dict[str, str]) -> OutputFile:
        folder = item.get("subfolder", "")
        path = self.base_dir / item["type"] / folder / item["filename"]
        return OutputFile(node_id, kind, item["filename"], folder, item["type"], path)


def link_pack(pack: Path, link: Path) -> None:
    """Link a pack into custom_nodes; on Windows copy it, because links need a privilege there."""
    if link.exists():
        return
    if os.name == "nt":
        shutil.copytree(pack, link, ignore=shutil.ignore_patterns(*NOT_COPIED))
    else:
        link.symlink_to(pack, target_is_directory=True)


def file_query(file: OutputFile) -> dict[str, str]:
    """Return the query with which ComfyUI's /view route serves a file."""
    return {"filename": file.filename, "subfolder": file.subfolder, "type": file.type}


def decode(raw: bytes) -> Any:
    """Decode bytes as JSON, or as text if they are not JSON."""
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")

"""Helpers that load, change and run the example workflows in workflows/."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from tests.comfy.graphs import DATA, Graph
from tests.comfy.server import Result

if TYPE_CHECKING:
    from playwright.sync_api import Response

    from tests.comfy.page import ComfyPage
    from tests.comfy.server import ComfyServer

FOLDER = Path(__file__).resolve().parents[2] / "workflows"
MARK = "Qwen3-TTS "  # the files' names begin so: ComfyUI's dialog searches in nothing else
NAMES = sorted(path.stem.removeprefix(MARK) for path in FOLDER.glob("*.json"))
RECORDINGS = {"your_voice.wav": "austen-0880.flac", "another_voice.wav": "austen-0870.flac"}
VIDEO, VIDEO_RATE = "your_video.mp4", 5  # frames per second
TRAINED = "your recordings"  # a folder in the input folder
# The frontends that the pack must work with: label -> (server fixture, whether Nodes 2.0 is on).
PAGES = {"0.3.75": ("server", False), "today": ("todays_server", False), "Nodes 2.0": ("todays_server", True)}
SLOW = pytest.mark.slow
# For the fixture ``page``: which pages a case opens in the default run; with --all it opens every one.
BOTH_PAGES = ["0.3.75", pytest.param("today", marks=SLOW), "Nodes 2.0"]
CLASSIC = ["0.3.75", *(pytest.param(label, marks=SLOW) for label in ("today", "Nodes 2.0"))]
NODES_2 = ["Nodes 2.0", *(pytest.param(label, marks=SLOW) for label in ("0.3.75", "today"))]
SEEDS_OF_A_PAGE = 1000
# Show text at any zoom, no menu over the graph, and no pack names on the nodes.
PICTURE_SETTINGS = {
    "LiteGraph.Canvas.MinFontSizeForLOD": 0,
    "Comfy.Graph.CanvasMenu": False,
    "Comfy.NodeBadge.NodeSourceBadgeMode": "None",
}

SET_WIDGET = """([kind, name, value]) => {
  const nodes = window.app.graph.nodes.filter((node) => node.type === kind)
  if (!nodes.length) throw new Error(`the workflow has no ${kind}`)
  for (const node of nodes) node.widgets.find((widget) => widget.name === name).value = value
}"""
GET_SETTING = "(name) => window.app.extensionManager.setting.get(name)"
SET_SETTING = "async ([name, value]) => { await window.app.extensionManager.setting.set(name, value) }"
LIVE_SOUND = "MorphTTS.LiveSound"
FOCUS = "() => window.app.extensionManager.command.execute('Workspace.ToggleFocusMode')"


def read_workflow(name: str) -> dict[str, Any]:
    """Return a shipped workflow in UI format."""
    return json.loads((FOLDER / f"{MARK}{name}.json").read_text(encoding="utf-8"))


def read_old_workflow(name: str) -> dict[str, Any]:
    """Return a workflow as version 0.1.0 shipped it last."""
    return json.loads((DATA / "workflows_0_1_0" / f"{name}.json").read_text(encoding="utf-8"))


def place_own_files(input_folder: Path) -> None:
    """Write human speech under the placeholder file names that the workflows use."""
    input_folder.mkdir(parents=True, exist_ok=True)
    for name, source in RECORDINGS.items():
        soundfile.write(input_folder / name, *soundfile.read(DATA / source))
    write_video(input_folder / VIDEO, DATA / RECORDINGS["another_voice.wav"])
    folder = input_folder / TRAINED
    folder.mkdir(exist_ok=True)
    for source in RECORDINGS.values():
        shutil.copy(DATA / source, folder)


def write_video(path: Path, recording: Path) -> None:
    """Write gray pictures with the sound of a recording, with the library that ComfyUI writes videos with."""
    import av

    sound, rate = soundfile.read(recording, dtype="float32")
    with av.open(str(path), "w") as file:
        pictures = file.add_stream("mpeg4", rate=VIDEO_RATE)
        pictures.width = pictures.height = 64
        pictures.pix_fmt = "yuv420p"
        track = file.add_stream("aac", rate=rate, layout="mono")
        for _ in range(round(len(sound) / rate * VIDEO_RATE)):
            picture = av.VideoFrame.from_ndarray(np.full((64, 64, 3), 128, np.uint8), format="rgb24")
            file.mux(pictures.encode(picture))
        samples = av.AudioFrame.from_ndarray(sound[None], format="fltp", layout="mono")
        samples.sample_rate = rate
        file.mux(track.encode(samples))
        for stream in (pictures, track):
            file.mux(stream.encode(None))


def first_seed(label: str) -> int:
    """Return the first of a thousand seeds that only this page of ``PAGES`` uses.

    Two pages share a server, which makes nothing twice. A node that speaks does not run if the other page has run it
    with the same seed: ComfyUI then tells the page nothing of it, and the page hears and lists nothing.
    """
    return SEEDS_OF_A_PAGE * list(PAGES).index(label)


def set_widget(page: ComfyPage, kind: str, name: str, value: object) -> None:
    """Set a widget of every node of a type, as a user would; there must be such a node."""
    page.page.evaluate(SET_WIDGET, [kind, name, value])


def set_live_sound(page: ComfyPage, on: bool) -> None:
    """Set whether speech plays while it is made, and wait until the server knows, which a run asks when it speaks."""

    def is_told(answer: Response) -> bool:
        return answer.url.endswith("/morph/speech/listen") and answer.request.post_data_json["wanted"] == on

    if page.page.evaluate(GET_SETTING, LIVE_SOUND) != on:
        with page.page.expect_response(is_told):
            page.page.evaluate(SET_SETTING, [LIVE_SOUND, on])


def after(graph: Graph, source: str, output: int, kind: str) -> str:
    """Return the id of the only node of a type that a node's output is connected to."""
    [found] = [
        key for key, node in graph.items() if node["class_type"] == kind and [source, output] in node["inputs"].values()
    ]
    return found


def of_kind(graph: Graph, kind: str) -> list[str]:
    return [key for key, node in graph.items() if node["class_type"] == kind]


def only(graph: Graph, kind: str) -> str:
    """Return the id of the only node of a type."""
    [found] = of_kind(graph, kind)
    return found


def run(server: ComfyServer, graph: Graph) -> Result:
    result = server.run(graph)
    assert result.ok, result.error
    return result

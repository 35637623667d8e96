"""What versions 0.1.0 and 0.2.0 saved opens with nothing red, and runs: workflows, API prompts and voices.

The nodes grew until 0.2.0. ``tests/data/saved_by_0_1_0`` has what the first state saved (fifteen nodes, before the
widgets that were added at the end), ``tests/data/workflows_0_1_0`` what the last state of 0.1.0 did, and
``workflows_0_2_0`` what 0.2.0 does, with folded widgets. Each workflow has the API prompt that was made of it, which
says its values by name: on the page they are a list.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from tests.comfy import graphs
from tests.comfy.examples import PAGES, of_kind, place_own_files, run, set_widget
from tests.comfy.graphs import DATA, Graph, node

if TYPE_CHECKING:
    from tests.comfy.page import ComfyBrowser, ComfyPage
    from tests.comfy.server import ComfyServer, Result

pytestmark = pytest.mark.usefixtures("own_files")

FIRST, LAST, NEXT = DATA / "saved_by_0_1_0", DATA / "workflows_0_1_0", DATA / "workflows_0_2_0"
PROMPTS = {path.name.removesuffix(".prompt.json"): path for path in sorted(LAST.glob("*.prompt.json"))}
PROMPTS |= {path.name.removesuffix(".prompt.json"): path for path in sorted(FIRST.glob("*.prompt.json"))}
PROMPTS |= {f"0.2.0 {path.name.removesuffix('.prompt.json')}": path for path in sorted(NEXT.glob("*.prompt.json"))}
BY_DEFAULT = {"Dialogue to files, track and subtitles", "Save, load and blend voices"}
SPEAKING = ("MorphTTSGenerateSpeech", "MorphTTSRenderScript", "MorphTTSDub")
REMOVED = ("continuity",)  # widgets that were the last of their nodes
RED = "() => window.app.graph.nodes.filter((node) => node.has_errors).map((node) => node.title)"
LAST_OUTPUTS = """() => window.app.graph.nodes
  .filter((node) => /GenerateSpeech|RenderScript|Dub/.test(node.type)).map((node) => node.outputs.at(-1).name)"""


@pytest.fixture(scope="module")
def page(request: pytest.FixtureRequest, browser: ComfyBrowser) -> Iterator[ComfyPage]:
    name, nodes_2 = PAGES[request.param]
    server: ComfyServer = request.getfixturevalue(name)
    place_own_files(server.base_dir / "input")
    with browser.open(server, nodes_2=nodes_2) as opened:
        yield opened


def read(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def workflows(folder: Path) -> list[Path]:
    """Return the workflows in a folder that are as the page saves them."""
    return [path for path in sorted(folder.glob("*.json")) if not path.name.endswith(".prompt.json")]


def open_with_nothing_red(page: ComfyPage, workflow: dict[str, Any]) -> Graph:
    """Open a workflow on the page; return what Run would queue."""
    from tests.comfy.page import ANSWERED

    page.errors.clear()
    report = page.load(workflow)
    page.page.wait_for_function(ANSWERED)  # what the page asks of a workflow's files may color its nodes
    page.settle()
    assert report["missing"] == [] and report["links"] == len(workflow["links"])
    assert page.page.evaluate(RED) == [] and page.problems() == []
    graph: Graph = report["api"]
    return graph


def check_inputs(sent: dict[str, Any], saved: dict[str, Any], info: dict[str, Any]) -> None:
    """Check that a node is sent with what was saved of it, and with the defaults of widgets that are newer."""
    saved = {name: value for name, value in saved.items() if name not in REMOVED}
    assert {name: sent.get(name) for name in saved} == saved
    inputs = {**info["input"].get("required", {}), **info["input"].get("optional", {})}
    newer = sent.keys() - saved.keys()
    assert {name: sent[name] for name in newer} == {name: inputs[name][1]["default"] for name in newer}


# By default the last of 0.1.0 and those of 0.2.0; workflows of the first run below.
@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(FIRST, marks=pytest.mark.slow, id="first"),
        pytest.param(LAST, id="last"),
        pytest.param(NEXT, id="0.2.0"),
    ],
)
@pytest.mark.parametrize(
    "page",
    [label if label == "Nodes 2.0" else pytest.param(label, marks=pytest.mark.slow) for label in PAGES],
    indirect=True,
)
def test_its_workflows_open_with_nothing_red_and_their_values(page, server, folder) -> None:
    object_info = server.object_info()
    for path in workflows(folder):
        sent = open_with_nothing_red(page, read(path))
        assert set(page.page.evaluate(LAST_OUTPUTS)) <= {"words"}, "new outputs are added at the end"
        saved = read(folder / f"{path.stem.partition(' (frontend')[0]}.prompt.json")
        assert sent.keys() == saved.keys(), path.stem
        for key, one in saved.items():
            if one["class_type"].startswith("MorphTTS"):
                check_inputs(sent[key]["inputs"], one["inputs"], object_info[one["class_type"]])


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("0.3.75", "Clone a voice and speak"),
        pytest.param("Nodes 2.0", "Clone a voice and speak (frontend 1.58.1)", marks=pytest.mark.slow),
        pytest.param("today", "Dialogue to files, track and subtitles", marks=pytest.mark.slow),
        pytest.param("Nodes 2.0", "Save, load and blend voices", marks=pytest.mark.slow),
    ],
    indirect=["page"],
)
def test_its_workflows_run_from_the_page(page: ComfyPage, name: str) -> None:
    graph = open_with_nothing_red(page, read(FIRST / f"{name}.json"))
    for kind in SPEAKING:
        if of_kind(graph, kind):
            set_widget(page, kind, "seed", 7)  # a run that no other test has made
    kind, data = page.run()
    assert kind == "execution_success", data
    assert page.page.evaluate(RED) == [] and page.problems() == []


def heard(result: Result) -> list[float]:
    """Return the loudest sample of each sound that a run saved."""
    sounds = [soundfile.read(file.path)[0] for file in result.files if file.kind == "audio"]
    return [float(np.abs(sound).max()) for sound in sounds]


@pytest.mark.parametrize(
    "name", [name if name in BY_DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in PROMPTS]
)
def test_its_api_prompts_run(server: ComfyServer, name: str) -> None:
    """A program queues them as they are: they have no values for inputs that are newer, which no page fills in."""
    result = run(server, read(PROMPTS[name]))
    loudest = heard(result)
    assert loudest and min(loudest) > 0.01


def test_its_voices_speak(server: ComfyServer, base_dir: Path) -> None:
    library = base_dir / "models" / "qwen3-tts-voices"
    library.mkdir(parents=True, exist_ok=True)
    shutil.copy(FIRST / "voice A.safetensors", library / "of 0.1.0.safetensors")
    graph = graphs.speech(max_seconds=1.0) | {"voice": node("MorphTTSLoadVoice", name="of 0.1.0")}
    graph["model"]["inputs"]["checkpoint"] = graphs.DEMO_VOICE
    [loudest] = heard(run(server, graph))
    assert loudest > 0.01

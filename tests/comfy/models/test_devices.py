"""One checkpoint on several devices: two models on the CPU stand for two GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from tests.comfy import graphs
from tests.comfy.examples import CLASSIC, PAGES, first_seed, read_workflow, set_widget
from tests.comfy.graphs import Graph, node, samples, shown
from tests.comfy.web.test_live import DIALOGUE, NAMES, OBSERVE, SCRIPT, STUB, heard, wait_for_the_end

if TYPE_CHECKING:
    from tests.comfy.page import ComfyBrowser
    from tests.comfy.server import ComfyServer, Result

LINES = 7
PATIENT = [f"ANNA: Line {number} {'goes on ' * (number % 3)}and ends." for number in range(LINES)]
BOTH = "devices: "


@pytest.fixture(scope="module", autouse=True)
def checkpoints(model_folders: Path) -> None:
    graphs.place_checkpoints(model_folders)


def scene(model: Graph, **changes: Any) -> Graph:
    """Return a script of LINES lines, spoken by the node ``model`` of a graph."""
    settings = {"gap": 0.1, "retries": 0, "reuse_lines": False}
    return {
        **model,
        "voice": node("MorphTTSPresetVoice", model=["model", 0], speaker="ryan"),
        "sampling": graphs.sampling(),
        "cast": node("MorphTTSCast", name="ANNA", voice=["voice", 0]),
        "script": graphs.render_script("\n".join(PATIENT), **(settings | changes)),
        "file": node("SaveAudio", audio=["script", 0], filename_prefix="device"),
        "report": node("PreviewAny", source=["script", 3]),
    }


def loaded(**changes: Any) -> Graph:
    return {"model": graphs.load_model("0.6B-CustomVoice", **changes)}


def two(**changes: Any) -> Graph:
    """Return two chained models on the CPU."""
    more = graphs.load_model("0.6B-CustomVoice", device="cpu")
    return {"more": more, **loaded(device="cpu", more_models=["more", 0], **changes)}


def run(server: ComfyServer, graph: Graph, **options: Any) -> Result:
    result = server.run(graph, **options)
    assert result.ok, result.error
    return result


def test_a_script_on_two_devices_sounds_as_on_one(server: ComfyServer) -> None:
    one, both = run(server, scene(loaded())), run(server, scene(two()))
    said = shown(both, "report")
    assert BOTH in said and " on cpu (2)" in said and BOTH not in shown(one, "report")
    alone, together = samples(one), samples(both)
    assert len(alone) == LINES
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


def test_a_script_on_two_devices_is_kept(server: ComfyServer) -> None:
    server.post("/morph/lines/clear")
    first = run(server, scene(two(), reuse_lines=True))
    again = server.run_freed(scene(loaded(), reuse_lines=True))
    assert again.ok, again.error
    assert BOTH in shown(first, "report") and f"{LINES} of {LINES} lines reused from an earlier run" in shown(
        again, "report"
    )
    assert all(np.array_equal(a, b) for a, b in zip(samples(first), samples(again), strict=True))


def test_a_user_cancels_both(server: ComfyServer) -> None:
    def interrupt(kind: str, data: Any) -> None:
        if kind == "progress" and data.get("node") == "script":
            server.interrupt()

    # Enough lines that the run still goes on when the cancel arrives, even on a busy machine.
    many = graphs.render_script(
        "ANNA: This line goes on and ends.\n" * 400, seed=1, retries=0, reuse_lines=False
    )
    graph = scene(two()) | {"sampling": graphs.sampling(30.0), "script": many}
    assert server.run(graph, on_event=interrupt).status == "execution_interrupted"
    run(server, scene(two(), seed=2))


@pytest.mark.parametrize("device", ["gpu:3", "all GPUs"])
def test_a_device_that_is_not_there_becomes_the_default_with_a_line_in_the_log(
    server: ComfyServer, device: str
) -> None:
    before = len(server.log())
    result = run(server, scene(loaded(device=device)))
    said = f"device '{device}' is not on this machine: the default device is used"
    assert server.log()[before:].count(said) == 1
    assert len(samples(result)) == LINES and BOTH not in shown(result, "report")


def test_a_chain_for_gpus_that_are_not_there_loads_the_checkpoint_once(server: ComfyServer) -> None:
    more = graphs.load_model("0.6B-CustomVoice", device="gpu:0")
    graph = {"more": more, **loaded(device="gpu:1", more_models=["more", 0])}
    assert BOTH not in shown(run(server, scene(graph)), "report")


def test_other_checkpoints_and_settings_are_refused(server: ComfyServer) -> None:
    other = {"more": graphs.load_model("0.6B-Base"), **loaded(more_models=["more", 0])}
    failed = server.run(scene(other))
    assert failed.error and "choose the same one" in failed.error["exception_message"]
    failed = server.run(scene(two(engine="eager")))
    assert failed.error and "choose the same settings" in failed.error["exception_message"]


def with_another_device(workflow: dict[str, Any]) -> dict[str, Any]:
    """Return a workflow whose only model has more models: another node like it. Both are on the CPU."""
    [model] = [one for one in workflow["nodes"] if one["type"] == "MorphTTSLoadModel"]
    model["widgets_values"] = [*model["widgets_values"][:5], "cpu"]
    number, link = workflow["last_node_id"] + 1, workflow["last_link_id"] + 1
    model["inputs"] = [{"name": "more_models", "type": "MORPH_TTS_MODEL", "link": link, "shape": 7}]
    output = {"name": "model", "type": "MORPH_TTS_MODEL", "links": [link]}
    another = {**model, "id": number, "pos": [-500, 300], "inputs": [], "outputs": [output]}
    return {
        **workflow,
        "nodes": [*workflow["nodes"], another],
        "links": [*workflow["links"], [link, number, 0, model["id"], 0, "MORPH_TTS_MODEL"]],
        "last_node_id": number,
        "last_link_id": link,
    }


@pytest.mark.slow
@pytest.mark.parametrize("label", CLASSIC)
def test_a_script_on_two_devices_is_heard_in_its_order(
    label: str, request: pytest.FixtureRequest, browser: ComfyBrowser
) -> None:
    name, nodes_2 = PAGES[label]
    script = ["CLARA: The rain has stopped, and the street is dry.", "BEN: Yes.", "CLARA: Then let us walk."]
    with browser.open(request.getfixturevalue(name), nodes_2=nodes_2) as page:
        page.page.evaluate(STUB)
        page.page.evaluate(OBSERVE)
        page.load(with_another_device(read_workflow(DIALOGUE)))
        set_widget(page, SCRIPT, "script", "\n".join(script))
        set_widget(page, SCRIPT, "seed", first_seed(label) + 31)
        page.page.evaluate(NAMES)
        kind, data = page.run()
        assert kind == "execution_success", data
        wait_for_the_end(page)
        assert page.page.evaluate("() => window.__names") == ["CLARA", "BEN", "CLARA"]
        sound, _, runs = heard(page)
        folder = request.getfixturevalue(name).base_dir
        tracks = [soundfile.read(path)[0] for path in folder.glob("output/**/*.flac")]
        assert runs[0] == 0, "nothing was heard before the run had ended"
        assert any(np.array_equal(sound, track) for track in tracks), "the track is not what was heard"
        assert page.problems() == []

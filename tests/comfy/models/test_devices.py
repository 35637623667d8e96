"""One checkpoint on several devices: two models on the CPU stand for two GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.comfy import graphs
from tests.comfy.graphs import Graph, node, samples, shown

if TYPE_CHECKING:
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


@pytest.mark.parametrize("device", ["gpu:3", "all GPUs"])
def test_a_device_that_is_not_there_becomes_the_default_with_a_line_in_the_log(server, device) -> None:
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

"""The cast in one node: in a real ComfyUI, and on today's page with inputs that grow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.comfy import graphs
from tests.comfy.examples import read_workflow
from tests.comfy.graphs import Graph, node, samples, shown

if TYPE_CHECKING:
    from playwright.sync_api import Route

    from tests.comfy.page import ComfyPage
    from tests.comfy.server import ComfyServer

pytestmark = pytest.mark.usefixtures("recordings")

SCRIPT = "ANNA: Good morning!\nBen: Not a minute.\nNobody answered.\n"
VOICES = ("voice", "other voice", "third voice")
# What a ComfyUI with inputs that grow says of them in /object_info.
GROWING = [
    "COMFY_AUTOGROW_V3",
    {
        "tooltip": "The characters' voices.",
        "template": {
            "input": {"required": {"voice": ["MORPH_TTS_VOICE", {"tooltip": "A voice. Required."}]}},
            "names": [f"voice_{number}" for number in range(1, 65)],
            "min": 1,
        },
    },
]
# Connect a Preset Voice to each new input; return the names of all inputs, and those in the prompt.
CONNECT = """async (count) => {
  const {graph} = window.app
  const cast = window.LiteGraph.createNode('MorphTTSWholeCast')
  graph.add(cast)
  for (let n = 0; n < count; n++) {
    const voice = window.LiteGraph.createNode('MorphTTSPresetVoice')
    graph.add(voice)
    voice.connect(0, cast, cast.inputs.findIndex((one) => one.name === `voices.voice_${n + 1}`))
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))
  }
  const {output} = await window.app.graphToPrompt()
  return {sockets: cast.inputs.filter((one) => one.type === 'MORPH_TTS_VOICE').map((one) => one.name),
          sent: Object.keys(output[String(cast.id)].inputs)}
}"""


def scene(cast: Graph) -> Graph:
    """Return a script of three characters, two of them cloned from the same recording in two ways."""
    clone = {"model": ["model", 0], "audio": ["other recording", 0]}
    return graphs.cloned_voice() | cast | {
        "sampling": graphs.sampling(),
        "other recording": node("LoadAudio", audio=graphs.OTHER_RECORDING),
        "other voice": node("MorphTTSCloneVoice", mode="x-vector", transcript="", **clone),
        "third voice": node(
            "MorphTTSCloneVoice", mode="ICL", transcript="He was not an ill-disposed young man.", **clone
        ),
        "script": node(
            "MorphTTSRenderScript", model=["model", 0], cast=["cast", 0], script=SCRIPT, seq_groups=5, seed=3,
            batch_size=2, language="auto", gap=0.3, sampling=["sampling", 0],
        ),
        "lines": node("SaveAudio", audio=["script", 0], filename_prefix="line"),
        "srt": node("PreviewAny", source=["script", 2]),
    }  # fmt: skip


def whole(names: str = "ANNA\nBEN\nNARRATOR", voices: tuple[str, ...] = VOICES, **more: Any) -> Graph:
    """Return ``cast``: the names with these voices in the first inputs."""
    slots = {f"voices.voice_{number}": [voice, 0] for number, voice in enumerate(voices, 1)}
    return {"cast": node("MorphTTSWholeCast", names=names, **slots, **more)}


def chain() -> Graph:
    return {
        "anna": node("MorphTTSCast", name="ANNA", voice=["voice", 0]),
        "ben": node("MorphTTSCast", name="BEN", voice=["other voice", 0], cast=["anna", 0]),
        "cast": node("MorphTTSCast", name="NARRATOR", voice=["third voice", 0], cast=["ben", 0]),
    }


def test_it_means_what_a_chain_of_casts_means(server: ComfyServer) -> None:
    one, three = server.run(scene(whole())), server.run(scene(chain()))
    assert one.ok and three.ok, one.error or three.error
    spoken, known = samples(one, "lines"), samples(three, "lines")
    assert len(spoken) == 3 and all(map(np.array_equal, spoken, known))
    assert shown(one, "srt") == shown(three, "srt")
    assert "ANNA: Good" in shown(one, "srt") and "NARRATOR: Nobody" in shown(one, "srt")


def test_it_adds_to_another_cast(server: ComfyServer) -> None:
    first = {"anna": node("MorphTTSCast", name="ANNA", voice=["voice", 0])}
    graph = scene(first | whole("BEN\nnarrator", VOICES[1:], cast=["anna", 0]))
    joined, alone = server.run(graph), server.run(scene(whole()))
    assert joined.ok and alone.ok, joined.error or alone.error
    assert np.array_equal(samples(joined, "lines")[0], samples(alone, "lines")[0])
    again = server.run(scene(first | whole("ANNA\nBEN\nNARRATOR", cast=["anna", 0])))
    assert "name 'ANNA' is already in the cast" in again.error["exception_message"]


@pytest.mark.parametrize(
    ("cast", "error"),
    [
        (whole(voices=VOICES[:2]), "voice_3 is not connected: connect NARRATOR's voice, or remove the name"),
        (whole("ANNA\nBEN"), "voice_3 has no name: type the character's name as line 3 of names"),
    ],
)
def test_a_name_without_a_voice_is_named(server: ComfyServer, cast: Graph, error: str) -> None:
    result = server.run(scene(cast))
    assert result.status == "execution_error" and result.error["exception_type"] == "ValueError"
    assert error in result.error["exception_message"] and result.error["node_id"] == "cast"


@pytest.mark.parametrize("names", ["", "ANNA\nBEN\nanna", "ANNA\nBEN: x\nC"])
def test_names_are_refused_before_anything_runs(server: ComfyServer, names: str) -> None:
    from tests.comfy.server import ComfyError

    with pytest.raises(ComfyError) as refused:
        server.run(scene(whole(names)))
    assert "name" in json.dumps(refused.value.body["node_errors"]["cast"])


def grow(route: Route) -> None:
    """Answer /object_info as a ComfyUI with inputs that grow does."""
    answer = route.fetch()
    definitions = answer.json()
    inputs = definitions["MorphTTSWholeCast"]["input"]
    for kind in ("required", "optional"):
        inputs[kind] = {name: one for name, one in inputs[kind].items() if not name.startswith("voices.")}
    inputs["required"]["voices"] = GROWING
    definitions["MorphTTSWholeCast"].pop("input_order")
    route.fulfill(response=answer, json=definitions)


@pytest.mark.parametrize("nodes_2", [pytest.param(False, marks=pytest.mark.slow), True])
def test_on_todays_page_inputs_grow_and_the_prompt_names_them_alike(
    todays_server: ComfyServer, new_page: Callable[..., ComfyPage], nodes_2: bool, screenshots: Path
) -> None:
    page = new_page(todays_server, nodes_2=nodes_2)
    page.page.route("**/object_info", grow)
    page.page.reload()
    page.page.wait_for_function("() => 'MorphTTSWholeCast' in (window.LiteGraph?.registered_node_types ?? {})")
    page.page.wait_for_function("() => window.app?.graph && window.app.extensionManager")
    page.load({"nodes": [], "links": [], "version": 0.4})
    made = page.page.evaluate(CONNECT, 10)
    names = [f"voices.voice_{number}" for number in range(1, 12)]
    assert made["sockets"] == names, "the last one is free"
    assert set(made["sent"]) == {"names", *names[:-1]}
    page.fit()
    page.screenshot(screenshots / f"inputs that grow ({'Nodes 2.0' if nodes_2 else 'classic'}).png")
    workflow = read_workflow("A whole cast in one node")
    report = page.load(workflow)
    [cast] = [one for one in report["api"].values() if one["class_type"] == "MorphTTSWholeCast"]
    assert set(cast["inputs"]) == {"names", *names[:3]} and page.problems() == []

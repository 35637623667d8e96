"""What is refused before a run: one error for one wrong value, under its input's name, and never a Python error.

Its sentence is on the node, and in a message of the page.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.comfy.examples import CLASSIC, PAGES, read_workflow, set_widget
from tests.comfy.graphs import Graph, node

if TYPE_CHECKING:
    from tests.comfy.page import ComfyPage
    from tests.comfy.server import ComfyServer

START = "1 Start here"
SPEECH = "MorphTTSGenerateSpeech"
LISTS = {  # node -> its input that is a list of what a user has, and what to do where that is nothing
    "MorphTTSLoadVoice": ("name", "save one with Save Voice, then press R and choose it"),
    "MorphTTSSpeechFromFile": ("file", "upload one with the button below"),
}
GROWING = {"voices": "voice_1"}  # an input that grows -> what is missing of it
ADD_NODE = """(kind) => {
  const {app, LiteGraph} = window
  const made = ['PreviewAny', kind].map((one) => LiteGraph.createNode(one))
  app.graph.clear()
  for (const one of made) app.graph.add(one)
  made[1].connect(0, made[0], 0)
}"""
QUEUE = "async () => { await window.app.queuePrompt(0) }"
ERRORS = """() => Object.values(window.app.lastNodeErrors ?? {}).map((node) =>
  node.errors.map((error) => [error.extra_info.input_name, error.details]))"""


def refusal(server: ComfyServer, graph: Graph) -> dict[str, list[dict[str, Any]]]:
    """Return the errors of the nodes of a graph that the server refuses."""
    from tests.comfy.server import ComfyError

    with pytest.raises(ComfyError) as refused:
        server.run(graph)
    return {key: value["errors"] for key, value in refused.value.body["node_errors"].items()}


def test_a_node_without_inputs_is_told_which_are_missing(server: ComfyServer) -> None:
    wrong = {}
    for kind, info in server.object_info().items():
        if not kind.startswith("MorphTTS") or not info["input"].get("required"):
            continue
        graph = {"bare": node(kind)}
        if not info["output_node"]:
            graph["end"] = node("PreviewAny", source=["bare", 0])
        found = {(one["type"], one["details"]) for errors in refusal(server, graph).values() for one in errors}
        missing = {GROWING.get(key, key) for key in info["input"]["required"]}
        if found != {("required_input_missing", key) for key in missing}:
            wrong[kind] = found
    assert wrong == {}


@pytest.fixture
def nothing(server: ComfyServer) -> Iterator[None]:
    """As on a fresh install: no voice has been saved, and no file is in the input folder."""
    folders = [server.base_dir / "input", server.base_dir / "models" / "qwen3-tts-voices"]
    aside = {folder: folder.with_name(f"{folder.name} aside") for folder in folders if folder.exists()}
    for folder, place in aside.items():
        folder.rename(place)
        folder.mkdir()
    yield
    for folder, place in aside.items():
        shutil.rmtree(folder)  # ComfyUI makes folders in it
        place.rename(folder)


@pytest.mark.usefixtures("nothing")
def test_an_empty_list_says_what_to_do(server: ComfyServer, new_page: Callable[..., ComfyPage]) -> None:
    page = new_page(server)
    for kind, (key, advice) in LISTS.items():
        page.page.evaluate(ADD_NODE, kind)
        page.page.evaluate(QUEUE)
        [[[name, details]]] = page.page.evaluate(ERRORS)
        assert name == key and details.startswith(f"{key} - {key} is '(no ") and advice in details


@pytest.mark.parametrize("label", CLASSIC)
def test_one_wrong_value_is_one_error_under_its_inputs_name(request, new_page, label, screenshots) -> None:
    server, nodes_2 = PAGES[label]
    page = new_page(request.getfixturevalue(server), nodes_2=nodes_2)
    before = None
    for name, value, said in (
        ("text", " ", " is empty: type what is to be spoken"),
        ("text", "[pause x] Hi.", ": [pause x] is"),
    ):
        page.load(read_workflow(START))
        set_widget(page, SPEECH, name, value)
        page.page.evaluate(QUEUE)
        errors = page.page.evaluate(ERRORS)
        assert [[one for one, _ in of_node] for of_node in errors] == [[name]]
        assert all(details.startswith(f"{name} - {name}{said}") for [[_, details]] in errors)
        sentences = [details.removeprefix(f"{name} - ") for [[_, details]] in errors]
        page.page.locator(".morph-failed").first.wait_for(state="attached")
        assert page.page.locator(".morph-failed").all_text_contents() == sentences
        page.page.get_by_text(sentences[0]).locator("visible=true").first.wait_for()
        if label != "0.3.75":  # there the earlier sentence stays in sight
            assert before is None or page.page.get_by_text(before).count() == 0, "it is past"
        before = sentences[0]
        page.screenshot(screenshots / f"refused, {name} ({label}).png")

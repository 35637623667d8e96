"""What web/js adds to ComfyUI's page: texts on nodes, progress texts, socket colors, search aliases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.comfy.examples import PAGES, first_seed, read_workflow, set_widget

if TYPE_CHECKING:
    from tests.comfy.page import ComfyBrowser, ComfyPage

SPEAKERS = "1 Start here - preset speakers"
DIALOGUE = "Dialogue to files, track and subtitles"
LOADER, SCRIPT, SUBTITLES = "MorphTTSLoadModel", "MorphTTSRenderScript", "MorphTTSSaveSubtitles"
SHOWN = """(kind) => window.app.graph.nodes.find((node) => node.type === kind)
  .widgets.find((widget) => widget.name === 'shown_text')?.value"""
LOOK_AT = """(kind) => {
  window.app.canvas.ds.scale = 1
  window.app.canvas.centerOnNode(window.app.graph.nodes.find((node) => node.type === kind))
}"""
SAVED = """async (kind) => {
  const {output, workflow} = await window.app.graphToPrompt()
  return [workflow.nodes.find((node) => node.type === kind).widgets_values,
          Object.keys(Object.values(output).find((node) => node.class_type === kind).inputs).sort()]
}"""
HEAR = """() => {
  window.__said = []
  window.app.api.addEventListener('progress_text', (event) => window.__said.push(event.detail))
}"""
COLORS = """() => ['MODEL', 'VOICE', 'CAST', 'SAMPLING', 'WORD_CHECK'].map((one) => `MORPH_TTS_${one}`).map((type) => [
  window.app.canvas.default_connection_color_byType[type], window.LGraphCanvas.link_type_colors[type],
  getComputedStyle(document.body).getPropertyValue(`--color-datatype-${type}`).trim()])"""
BACKGROUND = "() => getComputedStyle(document.body).getPropertyValue('--comfy-menu-bg')"
SEARCH = "() => window.app.extensionManager.command.execute('Workspace.SearchBox.Toggle')"
SPEECH = "TTS Generate Speech (text to speech)"
IN_NAMES = ["text to speech", "tts"]
IN_ALIASES = ["speak", "narrate", "voice clone"]  # frontend 1.32.9 searches only in names
WIDGETS = "(kind) => window.app.graph.nodes.find((node) => node.type === kind).widgets.map((one) => one.name)"


@pytest.fixture(scope="module", params=["0.3.75", pytest.param("today", marks=pytest.mark.slow), "Nodes 2.0"])
def label(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def page(label: str, request: pytest.FixtureRequest, browser: ComfyBrowser) -> Iterator[ComfyPage]:
    """One page for all tests of a frontend; each loads its own workflow."""
    server, nodes_2 = PAGES[label]
    with browser.open(request.getfixturevalue(server), nodes_2=nodes_2) as opened:
        opened.seed = first_seed(label)
        yield opened


def run(page: ComfyPage, seed: int) -> None:
    set_widget(page, SCRIPT, "seed", page.seed + seed)  # a run that is not cached
    kind, data = page.run()
    assert kind == "execution_success", data


def test_a_returned_text_is_shown_on_its_node_and_not_saved(page: ComfyPage) -> None:
    page.load(read_workflow(DIALOGUE))
    set_widget(page, SCRIPT, "script", "BEN: Hello there.")
    before = page.page.evaluate(SAVED, SUBTITLES)
    assert before == [["dialogue", "srt"], ["format", "name", "srt"]]
    run(page, 1)
    first = page.page.evaluate(SHOWN, SUBTITLES)
    assert first.startswith("saved dialogue_")
    page.page.evaluate(LOOK_AT, SUBTITLES)
    box = page.page.locator("textarea[readonly]").and_(page.page.locator(":visible"))
    assert first in [box.nth(n).input_value() for n in range(box.count())]
    run(page, 2)
    second = page.page.evaluate(SHOWN, SUBTITLES)
    assert second.startswith("saved dialogue_") and second != first
    assert page.page.evaluate(SAVED, SUBTITLES) == before
    assert page.problems() == []


def test_a_loading_model_shows_its_progress_text_until_the_run_ends(page: ComfyPage, label: str) -> None:
    workflow = read_workflow(SPEAKERS)
    page.load(workflow)
    before = page.page.evaluate(WIDGETS, LOADER)
    # A different value for each frontend of the same server, so that the model is not cached.
    set_widget(page, LOADER, "attention", "eager" if label == "today" else "sdpa")
    page.page.evaluate(HEAR)
    kind, data = page.run()
    assert kind == "execution_success", data
    [loader] = [node["id"] for node in workflow["nodes"] if node["type"] == LOADER]
    said = [(one["nodeId"], one["text"]) for one in page.page.evaluate("() => window.__said")]
    assert (str(loader), "loading demo voice (in the pack)") in said
    assert page.page.evaluate(WIDGETS, LOADER) == before
    assert page.problems() == []


def test_every_socket_type_keeps_its_color_when_the_palette_changes(page: ComfyPage) -> None:
    dark = page.page.evaluate(BACKGROUND)
    page.page.evaluate(
        "(name) => window.app.extensionManager.setting.set('Comfy.ColorPalette', name)", "light"
    )
    page.page.wait_for_function(f"(before) => ({BACKGROUND})() !== before", arg=dark)
    colors = page.page.evaluate(COLORS)
    assert len({color for color, _, _ in colors}) == len(colors) == 5
    assert all(color == link == style for color, link, style in colors) and all(map(all, colors))
    page.page.evaluate(
        "(name) => window.app.extensionManager.setting.set('Comfy.ColorPalette', name)", "dark"
    )


def test_the_search_finds_generate_speech_by_common_words(page: ComfyPage, label: str) -> None:
    page.page.evaluate(SEARCH)
    box = page.page.locator("input:visible" if label == "0.3.75" else "[role=dialog] input:visible")
    box = box.last if label == "0.3.75" else box.first
    found = page.page.locator("[role=option], [data-testid='result-item']")
    for words in IN_NAMES if label == "0.3.75" else IN_NAMES + IN_ALIASES:
        box.fill("no such node")
        found.filter(has_text=SPEECH).first.wait_for(state="hidden")
        box.fill(words)
        found.filter(has_text=SPEECH).first.wait_for(state="visible")
        if words in IN_NAMES:
            assert SPEECH in next(text for text in found.all_inner_texts() if "Qwen3-TTS Morph" in text)

"""What web/js adds to the page: texts and errors on nodes, progress texts, a menu entry, socket colors, aliases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.comfy.examples import (
    BOTH_PAGES,
    CLASSIC,
    NODES_2,
    PAGES,
    first_seed,
    read_old_workflow,
    read_workflow,
    set_widget,
)
from tests.patience import wait_until

if TYPE_CHECKING:
    from tests.comfy.page import ComfyBrowser, ComfyPage

SPEAKERS = "1 Start here"
DIALOGUE = "Dialogue to files, track and subtitles"
LOADER, SCRIPT, SUBTITLES = "MorphTTSLoadModel", "MorphTTSRenderScript", "MorphTTSSaveSubtitles"
SPEAKER = "MorphTTSPresetVoice"
NODE_IDS = "(kind) => window.app.graph.nodes.filter((node) => node.type === kind).map((node) => String(node.id))"
# A height as Nodes 2.0 draws it: it never draws a node lower than its elements.
DRAWN_HEIGHT = """(kind) => {
  const node = window.app.graph.nodes.find((node) => node.type === kind)
  return document.querySelector(`[data-node-id="${node.id}"]`).offsetHeight
}"""
LOWEST = """(kind) => {
  const node = window.app.graph.nodes.find((node) => node.type === kind)
  node.setSize([node.size[0], 1])
}"""
# The height of a node's own text box, on the classic canvas or in Nodes 2.0.
BOX_HEIGHT = """(kind) => {
  const node = window.app.graph.nodes.find((node) => node.type === kind)
  const drawn = document.querySelector(`[data-node-id="${node.id}"] textarea`)
  return drawn?.offsetHeight ?? node.widgets.find((one) => one.element?.tagName === 'TEXTAREA').computedHeight
}"""
FOCUS = """(kind) => {
  const node = window.app.graph.nodes.find((node) => node.type === kind)
  const drawn = document.querySelector(`[data-node-id="${node.id}"] textarea`)
  const box = drawn ?? node.widgets.find((one) => one.name === 'script').element
  box.focus()
}"""
SCRIPT_OF = """(kind) => window.app.graph.nodes.find((node) => node.type === kind)
  .widgets.find((one) => one.name === 'script').value"""
FAIL = """([id, type, message, exception]) => window.app.api.dispatchCustomEvent('execution_error', {
  prompt_id: 'x', node_id: id, node_type: type, exception_type: exception, exception_message: message,
  traceback: [], executed: [],
})"""
OPEN_START = "() => window.app.extensionManager.command.execute('MorphTTS.OpenStart')"
OPENED = """(kind) => {
  const {activeWorkflow} = window.app.extensionManager.workflow
  return [(window.app.rootGraph ?? window.app.graph).id, activeWorkflow.path,
          window.app.graph.nodes.some((node) => node.type === kind)]
}"""
MENU = ".comfy-menu-button-wrapper, .comfyui-logo"
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
SPEECH = "Generate Speech"
IN_NAMES = ["generate speech"]
IN_ALIASES = ["text to speech", "tts", "speak", "narrate", "voice clone"]
SEARCHES_NAMES_ALONE = "1.32.9"  # of the frontend: that of ComfyUI 0.3.75
SHOW_REPORT = """([kind, text, report]) => window.app.graph.nodes.find((node) => node.type === kind)
  .onExecuted({text: [text], morph_clips_report: [report]})"""
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


def close_messages(page: ComfyPage) -> None:
    """Close the dialogs in which frontend 1.32.9 tells errors: they cover the page."""
    dialogs = page.page.locator(".p-dialog:visible")

    def are_closed() -> bool:
        page.page.keyboard.press("Escape")
        page.page.wait_for_timeout(500)  # each fades out
        return dialogs.count() == 0

    if dialogs.count():
        wait_until(are_closed)


def show_script(page: ComfyPage, text: str) -> None:
    page.load(read_workflow(DIALOGUE))
    set_widget(page, SCRIPT, "script", text)
    page.page.evaluate(LOOK_AT, SCRIPT)
    page.settle()


# First: later tests leave a view in which Nodes 2.0 does not draw the text box.
@pytest.mark.parametrize("label", BOTH_PAGES, indirect=True, scope="module")
def test_a_new_line_of_a_script_offers_the_names_of_the_cast(page: ComfyPage) -> None:
    show_script(page, "BEN: Hello there.")
    page.page.evaluate(FOCUS, SCRIPT)
    names, keyboard = page.page.locator(".morph-names"), page.page.keyboard
    keyboard.press("Control+End")
    keyboard.press("Enter")
    names.wait_for()
    assert {"BEN", "CLARA"} <= set(names.locator("div").all_inner_texts())
    keyboard.type("cl")
    assert names.locator("div").all_inner_texts() == ["CLARA"]
    keyboard.press("Tab")
    keyboard.type("Good evening.")
    assert names.count() == 0
    keyboard.press("Enter")
    keyboard.press("ArrowDown")
    keyboard.press("Enter")
    keyboard.type("Hello.\n\n")
    lines = page.page.evaluate(SCRIPT_OF, SCRIPT).split("\n")
    assert lines[:2] == ["BEN: Hello there.", "CLARA: Good evening."]
    assert lines[2].endswith(": Hello.") and lines[3:] == ["", ""], "Enter alone takes no name"
    keyboard.press("Escape")
    assert names.count() == 0 and page.problems() == []


@pytest.mark.parametrize("label", NODES_2, indirect=True, scope="module")
def test_a_returned_text_is_shown_on_its_node_and_not_saved(page: ComfyPage) -> None:
    page.load(read_workflow(DIALOGUE))
    set_widget(page, SCRIPT, "script", "BEN: Hello there.")
    before = page.page.evaluate(SAVED, SUBTITLES)
    assert before == [["dialogue", "srt"], ["format", "name", "srt"]]
    run(page, 1)
    first = page.page.evaluate(SHOWN, SUBTITLES)
    assert first.startswith("saved dialogue_")
    page.page.evaluate(LOOK_AT, SUBTITLES)
    page.page.locator(".morph-report-head:visible", has_text=first).wait_for()
    run(page, 2)
    second = page.page.evaluate(SHOWN, SUBTITLES)
    assert second.startswith("saved dialogue_") and second != first
    assert page.page.evaluate(SAVED, SUBTITLES) == before
    assert page.problems() == []


@pytest.mark.parametrize("label", NODES_2, indirect=True, scope="module")
def test_a_nodes_own_text_comes_first_then_the_list_then_the_folded_report(page: ComfyPage) -> None:
    show_script(page, "BEN: Hello there.\nCLARA: Good evening.")
    before = page.page.evaluate(BOX_HEIGHT, SCRIPT)
    run(page, 3)
    names = page.page.evaluate(WIDGETS, SCRIPT)
    assert names.index("script") < names.index("speech_clips") < names.index("shown_text")
    page.page.evaluate(LOOK_AT, SCRIPT)
    page.settle()
    assert page.page.evaluate(BOX_HEIGHT, SCRIPT) >= min(before, 110), "the results took the text box's room"
    page.page.evaluate(SHOW_REPORT, [SCRIPT, "Complete.", "line 1\nline 2\nRTF 1.1"])
    head = page.page.locator(".morph-report-head", has_text="Complete.")
    rest = page.page.locator(".morph-report-rest", has_text="RTF 1.1")
    head.wait_for(state="attached")
    assert head.get_attribute("aria-expanded") == "false" and not rest.is_visible()
    page.page.evaluate(LOWEST, SCRIPT)
    page.settle()
    heights = [page.page.evaluate(DRAWN_HEIGHT, SCRIPT)]
    for state in ("visible", "hidden"):
        head.dispatch_event("click")
        rest.wait_for(state=state)
        page.settle()
        heights.append(page.page.evaluate(DRAWN_HEIGHT, SCRIPT))
    assert rest.text_content() == "line 1\nline 2\nRTF 1.1"
    folded, unfolded, again = heights
    assert unfolded > folded >= again, "folding gives the room back"
    of_one_line = page.page.locator(".morph-report-head", has_text="saved dialogue_").first
    assert of_one_line.is_disabled() and of_one_line.text_content().startswith("saved dialogue_")
    assert page.problems() == []


@pytest.mark.parametrize("label", CLASSIC, indirect=True, scope="module")
def test_a_failed_node_says_why_until_it_runs_again(page: ComfyPage, label: str, screenshots: Path) -> None:
    page.load(read_workflow(SPEAKERS))
    set_widget(page, SPEAKER, "custom_speaker", "nobody")
    assert page.fail().startswith("speaker 'nobody' is unknown to demo voice (in the pack): choose one of ")
    failed = page.page.locator(".morph-failed")
    page.page.evaluate(LOOK_AT, SPEAKER)
    page.settle()
    page.screenshot(screenshots / f"failed node ({label}).png")
    close_messages(page)
    set_widget(page, SPEAKER, "custom_speaker", "")
    kind, data = page.run()
    assert kind == "execution_success", data
    assert failed.count() == 0 and "shown_error" not in page.page.evaluate(WIDGETS, SPEAKER)
    assert page.problems() == []


def test_an_error_that_no_sentence_explains_says_what_it_is(page: ComfyPage) -> None:
    page.load(read_workflow(SPEAKERS))
    node = page.page.evaluate(NODE_IDS, LOADER)[0]
    failed = page.page.locator(".morph-failed")
    page.page.evaluate(FAIL, [node, "KSampler", "not ours", "ValueError"])
    page.page.evaluate(FAIL, ["morph-voice", SPEAKER, "of the Voices tab", "ValueError"])
    page.page.evaluate(FAIL, [node, LOADER, "'speaker'\n", "KeyError"])
    failed.wait_for(state="attached")
    assert failed.all_text_contents() == ["KeyError: 'speaker'"]
    close_messages(page)


def test_the_menu_opens_start_here_each_time_as_a_workflow_of_its_own(page: ComfyPage, label: str) -> None:
    page.load({"nodes": [], "links": [], "version": 0.4})
    page.page.locator(MENU).first.click()
    page.page.get_by_text("Extensions", exact=True).first.hover()
    page.page.get_by_text("Qwen3-TTS Morph", exact=True).last.hover()
    page.page.get_by_text("Open Start here", exact=True).last.click()
    page.page.wait_for_function(f"(kind) => ({OPENED})(kind)[2]", arg=SPEAKER)
    page.settle()
    first, path, _ = page.page.evaluate(OPENED, SPEAKER)
    assert SPEAKERS in path
    page.page.evaluate(OPEN_START)
    page.page.wait_for_function(f"([kind, first]) => ({OPENED})(kind)[0] !== first", arg=[SPEAKER, first])
    page.settle()
    second, _, is_loaded = page.page.evaluate(OPENED, SPEAKER)
    assert is_loaded and read_workflow(SPEAKERS)["id"] not in (first, second)
    assert page.problems() == []


@pytest.mark.parametrize("label", CLASSIC, indirect=True, scope="module")
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
    page.page.evaluate("(name) => window.app.extensionManager.setting.set('Comfy.ColorPalette', name)", "light")
    page.page.wait_for_function(f"(before) => ({BACKGROUND})() !== before", arg=dark)
    colors = page.page.evaluate(COLORS)
    assert len({color for color, _, _ in colors}) == len(colors) == 5
    assert all(color == link == style for color, link, style in colors) and all(map(all, colors))
    page.page.evaluate("(name) => window.app.extensionManager.setting.set('Comfy.ColorPalette', name)", "dark")


def test_the_search_finds_generate_speech_by_common_words(page: ComfyPage) -> None:
    old = page.page.evaluate("() => window.__COMFYUI_FRONTEND_VERSION__") == SEARCHES_NAMES_ALONE
    page.page.evaluate(SEARCH)
    box = page.page.locator("input:visible" if old else "[role=dialog] input:visible")
    box = box.last if old else box.first
    found = page.page.locator("[role=option], [data-testid='result-item']")
    for words in IN_NAMES if old else IN_NAMES + IN_ALIASES:
        box.fill("no such node")
        found.filter(has_text=SPEECH).first.wait_for(state="hidden")
        box.fill(words)
        found.filter(has_text=SPEECH).first.wait_for(state="visible")
        if words in IN_NAMES:
            assert SPEECH in next(text for text in found.all_inner_texts() if "Qwen3-TTS Morph" in text)


# What a newcomer sees of each node: on the classic canvas too, which folds nothing by itself.
SEEN = {
    "MorphTTSGenerateSpeech": ["text", "language", "seq_groups", "seed"],
    "MorphTTSRenderScript": ["script", "seq_groups", "seed", "language", "gap"],
    "MorphTTSDub": ["captions", "seq_groups", "seed"],
    "MorphTTSLoadModel": ["checkpoint"],
    "MorphTTSPresetVoice": ["speaker"],
    "MorphTTSCloneVoice": ["mode", "transcript"],
    "MorphTTSSaveSpeech": ["name", "format"],
}
ADD = """(kind) => {
  const node = window.LiteGraph.createNode(kind)
  window.app.graph.add(node)
}"""
NODE = "(window.app.graph.nodes.find((node) => node.type === kind))"
VISIBLE = f"""(kind) => {NODE}.widgets.filter((one) => {NODE}.isWidgetVisible(one)).map((one) => one.name)"""
PRESS = f"(kind) => {NODE}.widgets.find((one) => one.name === 'morph_more').callback()"
LABELS = f"(kind) => Object.fromEntries({NODE}.widgets.map((one) => [one.name, one.label]))"
# The height of a node, and the least that its widgets need.
HEIGHTS = f"(kind) => [{NODE}.size[1], {NODE}.computeSize()[1]]"
# The names of the widgets that take no row on the canvas.
FOLDED = f"""(kind) => {NODE}.widgets.filter((one) => one.computeSize?.()[1] < 0).map((one) => one.name)"""
LINK = """([kind, name]) => {
  const node = window.app.graph.nodes.find((node) => node.type === kind)
  const source = window.LiteGraph.createNode('PrimitiveInt')
  window.app.graph.add(source)
  source.connect(0, node, node.inputs.findIndex((one) => one.name === name))
}"""


def visible(page: ComfyPage, kind: str) -> list[str]:
    names = page.page.evaluate(VISIBLE, kind)
    return [name for name in names if name not in ("control_after_generate", "audioUI", "morph_more")]


def test_a_new_node_shows_what_everybody_sets(page: ComfyPage, label: str, screenshots: Path) -> None:
    page.load({"nodes": [], "links": [], "version": 0.4})
    for kind, names in SEEN.items():
        page.page.evaluate(ADD, kind)
        page.settle()
        assert visible(page, kind) == names
        if kind == "MorphTTSLoadModel":
            height, least = page.page.evaluate(HEIGHTS, kind)
            assert height == least, "folded widgets leave no hole"
    assert page.page.evaluate(LABELS, "MorphTTSGenerateSpeech")["seq_groups"] == "SEQ_GROUPS (fast)"
    if label == "Nodes 2.0":
        page.page.get_by_text("Show advanced inputs").first.wait_for()
        assert page.page.get_by_text("More", exact=True).count() == 0, "the page has a button of its own"
    assert page.problems() == []


@pytest.mark.parametrize("label", CLASSIC, indirect=True, scope="module")
def test_more_shows_the_folded_widgets_and_how_many_are_changed(page: ComfyPage, label: str) -> None:
    page.load(read_old_workflow("1 Start here - preset speakers"))  # saved with room for all widgets
    height, least = page.page.evaluate(HEIGHTS, LOADER)
    if label != "Nodes 2.0":
        assert height == least
    before = page.page.evaluate(SAVED, LOADER)
    set_widget(page, LOADER, "precision", "fp32")
    set_widget(page, LOADER, "engine", "eager")
    assert page.page.evaluate(LABELS, LOADER)["morph_more"] == "More (2 changed)"
    page.page.evaluate(PRESS, LOADER)
    page.settle()
    assert visible(page, LOADER) == ["checkpoint", "precision", "attention", "engine", "weights", "device"]
    assert page.page.evaluate(LABELS, LOADER)["morph_more"] == "Fewer"
    saved = page.page.evaluate("async () => (await window.app.graphToPrompt()).workflow")
    page.load(saved)
    assert "precision" in visible(page, LOADER), "a workflow keeps what is unfolded"
    values = page.page.evaluate(SAVED, LOADER)
    assert values == [[before[0][0], "fp32", before[0][2], "eager", *before[0][4:]], before[1]]
    page.page.evaluate(PRESS, LOADER)
    page.settle()
    assert visible(page, LOADER) == ["checkpoint"]
    page.page.evaluate(LINK, ["MorphTTSGenerateSpeech", "split_chars"])
    page.settle()
    assert "split_chars" not in page.page.evaluate(FOLDED, "MorphTTSGenerateSpeech")
    assert page.problems() == []

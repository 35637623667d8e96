"""The voice library in ComfyUI's sidebar, as a user has it: presets and saved voices, heard, sought, put on the canvas,
renamed, described, exported, imported and deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from tests.comfy import graphs
from tests.comfy.examples import BOTH_PAGES, CLASSIC, NODES_2, PAGES, set_live_sound
from tests.comfy.test_workflows import DRAWN, overlapping

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.comfy.page import ComfyBrowser, ComfyPage
    from tests.comfy.server import ComfyServer

LIBRARY = Path("models", "qwen3-tts-voices")
TOGGLE = "() => window.app.extensionManager.command.execute('Workspace.ToggleSidebarTab.morph-voices')"
ADD_LOADER = """(name) => {
  const node = window.LiteGraph.createNode('MorphTTSLoadVoice')
  window.app.graph.add(node)
  node.widgets.find((widget) => widget.name === 'name').value = name
}"""
LOADER = """() => {
  const {value, options} = window.app.graph.nodes.find((node) => node.type === 'MorphTTSLoadVoice')
    .widgets.find((widget) => widget.name === 'name')
  return [value, options.values]
}"""
# The demo voice and a preset, saved under a name.
ADD_SAVER = """() => {
  const [model, voice, save] = ['MorphTTSLoadModel', 'MorphTTSPresetVoice', 'MorphTTSSaveVoice'].map((type) => {
    const node = window.LiteGraph.createNode(type)
    window.app.graph.add(node)
    return node
  })
  const set = (node, name, value) => { node.widgets.find((widget) => widget.name === name).value = value }
  set(model, 'checkpoint', 'demo voice (in the pack)')
  set(save, 'name', 'Newcomer')
  model.connect(0, voice, 'model')
  voice.connect(0, save, 'voice')
}"""
# The demo voice, trained for one update on a folder in the input folder.
ADD_TRAINER = """([name, folder]) => {
  const [lora, model, train] = ['MorphTTSLoadLora', 'MorphTTSLoadModel', 'MorphTTSTrainVoice'].map((type) => {
    const node = window.LiteGraph.createNode(type)
    window.app.graph.add(node)
    return node
  })
  lora.mode = 2 // not run
  const set = (node, name, value) => { node.widgets.find((widget) => widget.name === name).value = value }
  set(model, 'checkpoint', 'demo voice (in the pack)')
  const given = {name, folder, consent: true, recogniser: 'off', steps: 1, batch_size: 1}
  for (const [widget, value] of Object.entries(given)) set(train, widget, value)
  model.connect(0, train, 'model')
}"""
LORAS = """() => window.app.graph.nodes.find((node) => node.type === 'MorphTTSLoadLora')
  .widgets.find((widget) => widget.name === 'adapter').options.values"""
LIST_OF_LAST = """() => {
  const {value, options} = window.app.graph.nodes.at(-1).widgets.find((widget) => widget.name === 'name')
  return [value, options.values]
}"""
# Of each node: its type and what it is set to, whether its middle is visible beside the tab, where it is.
ADDED = """() => window.app.graph.nodes.map((node) => {
  const {pos, size} = node
  const [x, y] = window.app.canvas.ds.convertOffsetToCanvas([pos[0] + size[0] / 2, pos[1] + size[1] / 2])
  const tab = document.querySelector('.morph-voices').getBoundingClientRect()
  const canvas = window.app.canvas.canvas.getBoundingClientRect()
  const isSeen = x + canvas.left > tab.right && x < canvas.width && y > 0 && y < canvas.height
  return [[node.type, node.widgets[0].value], isSeen, [...node.pos]]
})"""
# A short run has left the queue before the page asks for it.
ASK_LATE = """() => {
  const {api} = window.app, ask = api.fetchApi
  const ended = new Promise((go) => api.addEventListener('execution_success', () => setTimeout(go, 500)))
  api.fetchApi = async (route, ...more) => {
    if (route === '/queue') await ended
    return ask.call(api, route, ...more)
  }
}"""
ADD_SPEECH = """() => {
  window.app.graph.clear()
  window.app.graph.add(window.LiteGraph.createNode('MorphTTSGenerateSpeech'))
  return window.app.graph.nodes[0].inputs.filter(({type, link}) => type === 'MORPH_TTS_VOICE' && link != null)
}"""
VOICE_OF_LAST = """() => {
  const speech = window.app.graph.nodes.find((node) => node.type === 'MorphTTSGenerateSpeech')
  return speech.getInputNode(speech.findInputSlot('voice'))?.widgets[0].value
}"""
# The page's one Audio element: it notes what it is to play, and plays nothing.
STUB = """() => {
  window.Audio = class extends EventTarget {
    pause() {}
    async play() {
      const answer = await fetch(this.src)
      if (!answer.ok) throw new Error(this.src)
      window.__played.push(this.src)
    }
  }
}"""
START = "() => { window.__played = []; window.app.graph.clear() }"
CHANGED = "() => window.app.api.dispatchCustomEvent('status', {exec_info: {queue_remaining: 0}})"


@pytest.fixture(scope="module")
def opened(request: pytest.FixtureRequest, browser: ComfyBrowser) -> Iterator[ComfyPage]:
    """One page for all tests of a frontend: to open it takes longer than most of them."""
    name, nodes_2 = PAGES[request.param]
    server: ComfyServer = request.getfixturevalue(name)
    with browser.open(server, nodes_2=nodes_2) as page:
        page.folder, page.server = server.base_dir / LIBRARY, server
        page.page.evaluate(STUB)
        yield page


@pytest.fixture
def page(opened: ComfyPage) -> Iterator[ComfyPage]:
    """An empty graph beside the library; Heart is a speaker of the demo voice, Far fits no checkpoint that is here."""
    import torch
    from qwen3_tts_morph.morph.voice.file import save_voice
    from qwen3_tts_morph.morph.voice.voice import Voice

    folder = opened.folder
    folder.mkdir(parents=True, exist_ok=True)
    aside = {path: path.read_bytes() for path in folder.glob("*.safetensors")}
    for path in aside:
        path.unlink()
    save_voice(Voice("preset", "0b02", "Heart", speaker="heart"), folder / "Heart.safetensors", "a warm voice")
    save_voice(Voice("x_vector", "9b", "Far", torch.ones(8)), folder / "Far.safetensors")
    opened.errors.clear()
    opened.refused.clear()
    opened.page.evaluate(START)
    opened.page.evaluate(TOGGLE)
    row(opened, "Heart").wait_for()
    yield opened
    if opened.page.locator(".morph-voices").count():
        opened.page.evaluate(TOGGLE)
        opened.page.locator(".morph-voices").wait_for(state="detached")
    for path in folder.glob("*.safetensors"):
        path.unlink()
    for path, data in aside.items():
        path.write_bytes(data)


def rows(page: ComfyPage) -> Locator:
    return page.page.locator(".morph-voices .morph-voice")


def row(page: ComfyPage, name: str) -> Locator:
    """The row of a saved voice: presets are in lower case."""
    return rows(page).filter(has=page.page.get_by_text(name, exact=True).and_(page.page.locator("strong")))


def press(page: ComfyPage, name: str, action: str) -> None:
    row(page, name).get_by_role("button", name=action, exact=True).click()


def choose_action(page: ComfyPage, name: str, action: str) -> None:
    press(page, name, "More")
    page.page.get_by_role("menuitem", name=action, exact=True).click()


def answer(page: ComfyPage, text: str) -> None:
    """Type into ComfyUI's own dialog, and confirm."""
    field = page.page.locator("[role=dialog] input:visible").last
    field.fill(text)
    field.press("Enter")


def names(page: ComfyPage) -> list[str]:
    return sorted(path.stem for path in page.folder.glob("*.safetensors"))


@pytest.mark.parametrize("opened", NODES_2, indirect=True, scope="module")
def test_a_voice_is_heard_through_the_queue_and_again_without_it(page: ComfyPage, screenshots: Path) -> None:
    first = row(page, "Heart")
    assert "demo voice with heart" in first.inner_text() and "a warm voice" in first.inner_text()
    far = row(page, "Far").get_by_role("button", name="Play")
    assert far.is_disabled() and "needs 9b Base" in str(far.get_attribute("title"))
    page.screenshot(screenshots / "voice library.png")
    press(page, "Heart", "Play")
    bar = page.page.locator(".morph-live-bar .morph-live")
    bar.wait_for()  # it sounds while it is made
    page.page.locator(".morph-voices .pi-spinner").wait_for(state="hidden")
    assert page.page.evaluate("() => window.__played") == [], "it was heard twice"
    bar.wait_for(state="detached")  # it stays over no workflow
    runs = len(page.server.get("/history"))
    press(page, "Heart", "Play")
    page.page.wait_for_function("() => window.__played.length === 1")
    assert len(page.server.get("/history")) == runs, "it was queued again"
    set_live_sound(page, False)
    try:
        page.page.get_by_label("Sentence to speak").fill("Good morning to all of you.")
        press(page, "Heart", "Play")
        page.page.wait_for_function("() => window.__played.length === 2")
    finally:
        set_live_sound(page, True)
    assert len(set(page.page.evaluate("() => window.__played"))) == 2
    newest = max(page.server.base_dir.glob("temp/*.flac"), key=lambda path: path.stat().st_mtime_ns)
    samples, rate = soundfile.read(newest)
    assert rate == 24000 and len(samples) > rate and np.abs(samples).max() > 0.05
    assert page.problems() == []


@pytest.mark.parametrize("opened", NODES_2, indirect=True, scope="module")
def test_presets_are_on_top_and_are_heard(page: ComfyPage) -> None:
    found = page.page.locator(".morph-voices strong").all_text_contents()
    assert found == ["heart", "emma", "michael", "george", "Far", "Heart"]
    assert "demo voice" in row(page, "emma").inner_text()
    assert row(page, "emma").get_by_role("button", name="More").count() == 0
    assert [row(page, name).get_by_role("button", name="Play").count() for name in ("emma", "Heart")] == [
        1,
        1,
    ]
    press(page, "emma", "Play")
    bar = page.page.locator(".morph-live-bar .morph-live")
    bar.get_by_role("button", name="Close").click()
    assert bar.count() == 0
    page.page.locator(".morph-voices .pi-spinner").wait_for(state="hidden")
    assert bar.count() == 0 and page.problems() == []


@pytest.mark.parametrize("opened", CLASSIC, indirect=True, scope="module")
def test_a_search_leaves_the_voices_that_have_its_words(page: ComfyPage) -> None:
    def sought(words: str) -> list[str]:
        page.page.get_by_label("Search voices").fill(words)
        return page.page.locator(".morph-voices strong").all_text_contents()

    assert sought("HEART") == ["heart", "Heart"]
    assert sought("warm voice") == ["Heart"]
    assert sought("9b base") == ["Far"]
    assert sought("nobody") == []
    assert rows(page).all_text_contents() == ["No voice matches."]
    everybody = sought("")  # other checkpoints that are here may have speakers too
    assert everybody[:4] == ["heart", "emma", "michael", "george"] and everybody[-2:] == ["Far", "Heart"]


@pytest.mark.parametrize("opened", CLASSIC, indirect=True, scope="module")
def test_a_voice_is_added_to_the_canvas_where_it_can_be_seen(page: ComfyPage) -> None:
    press(page, "emma", "Add to the canvas")
    press(page, "Far", "Add to the canvas")
    press(page, "Far", "Add to the canvas")
    added = page.page.evaluate(ADDED)
    assert [values for values, _, _ in added] == [
        ["MorphTTSPresetVoice", "emma"],
        *2 * [["MorphTTSLoadVoice", "Far"]],
    ]
    assert all(is_seen for _, is_seen, _ in added) and added[1][2] != added[2][2], "one hides the other"
    assert overlapping(page.page.evaluate(DRAWN)) == []
    assert page.page.evaluate(ADD_SPEECH) == []
    press(page, "emma", "Add to the canvas")
    assert page.page.evaluate(VOICE_OF_LAST) == "emma", "the only node without a voice gets it"
    assert page.problems() == []


@pytest.mark.parametrize("opened", NODES_2, indirect=True, scope="module")
def test_a_voice_that_a_run_saves_is_in_the_tab_and_in_the_lists(page: ComfyPage) -> None:
    page.page.evaluate(ADD_LOADER, "Far")
    page.page.evaluate(ADD_SAVER)
    page.page.evaluate(ASK_LATE)
    kind, data = page.run()
    assert kind == "execution_success", data
    row(page, "Newcomer").wait_for()
    page.page.wait_for_function(f"() => ({LOADER})()[1].includes('Newcomer')")
    assert page.page.evaluate(LOADER) == ["Far", ["Far", "Heart", "Newcomer"]]
    press(page, "Newcomer", "Add to the canvas")
    later = page.page.evaluate(LIST_OF_LAST)
    assert later == ["Newcomer", ["Far", "Heart", "Newcomer"]], "a node that is added later has the old list"
    assert page.problems() == []


@pytest.mark.parametrize("opened", BOTH_PAGES, indirect=True, scope="module")
def test_a_trained_voice_is_in_the_tab_and_in_the_lists(page: ComfyPage) -> None:
    folder = page.server.base_dir / "input" / "trained"
    folder.mkdir(exist_ok=True)
    shutil.copy(graphs.DATA / graphs.RECORDING, folder)
    (folder / graphs.RECORDING).with_suffix(".txt").write_text(graphs.WORDS, encoding="utf-8")
    page.page.evaluate(ADD_TRAINER, ["Trained", "trained"])
    kind, data = page.run()
    assert kind == "execution_success", data
    row(page, "Trained").wait_for()
    page.page.wait_for_function(f"() => ({LORAS})().includes('qwen3-tts-loras/Trained')")
    assert page.problems() == []
    shutil.rmtree(page.server.base_dir / "models" / "qwen3-tts-loras" / "Trained")


@pytest.mark.slow
@pytest.mark.parametrize("opened", NODES_2, indirect=True, scope="module")
def test_a_hearing_that_is_removed_from_the_queue_waits_no_longer(page: ComfyPage) -> None:
    """Held up at the route, so that it is there for as long as the test needs it."""
    page.page.route("**/prompt", lambda route: route.fulfill(json={"prompt_id": "x", "number": 1, "node_errors": {}}))
    page.page.route("**/queue", lambda route: route.fulfill(json=queue))
    queue: dict[str, Any] = {"queue_running": [], "queue_pending": []}
    spinner = page.page.locator(".morph-voices .pi-spinner")
    with page.page.expect_request("**/prompt") as asked:
        press(page, "Heart", "Play")
    queue["queue_pending"] = [[1, asked.value.post_data_json["prompt_id"], {}, {}, []]]
    spinner.wait_for()
    with page.page.expect_response("**/queue"):
        page.page.evaluate(CHANGED)
    page.page.wait_for_timeout(1500)
    assert spinner.count() == 1, "it waits in the queue"
    queue["queue_pending"] = []
    page.page.evaluate(CHANGED)
    spinner.wait_for(state="hidden")
    page.page.unroute("**/prompt")
    page.page.unroute("**/queue")


@pytest.mark.parametrize("opened", CLASSIC, indirect=True, scope="module")
def test_a_renamed_voice_is_renamed_in_the_open_workflow(page: ComfyPage) -> None:
    page.page.evaluate(ADD_LOADER, "Heart")
    choose_action(page, "Heart", "Rename")
    answer(page, "Anna")
    row(page, "Anna").wait_for()
    assert names(page) == ["Anna", "Far"]
    page.page.get_by_text("Heart is now Anna").first.wait_for()
    value, options = page.page.evaluate(LOADER)
    assert value == "Anna" and options == ["Anna", "Far"]
    choose_action(page, "Anna", "Rename")
    answer(page, "Far")
    page.page.get_by_text("a voice named 'Far' already exists").first.wait_for()
    assert names(page) == ["Anna", "Far"] and page.problems() == []


@pytest.mark.parametrize("opened", CLASSIC, indirect=True, scope="module")
def test_deleting_asks(page: ComfyPage) -> None:
    choose_action(page, "Far", "Delete")
    dialog = page.page.locator("[role=dialog]").filter(has_text="cannot be undone")
    dialog.wait_for()
    page.page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert names(page) == ["Far", "Heart"]
    choose_action(page, "Far", "Delete")
    dialog.get_by_role("button", name="Delete").click()
    row(page, "Far").wait_for(state="hidden")
    assert names(page) == ["Heart"] and page.problems() == []


@pytest.mark.parametrize("opened", NODES_2, indirect=True, scope="module")
def test_a_voice_is_exported_and_imported_under_another_name(page: ComfyPage, tmp_path: Path) -> None:
    with page.page.expect_download() as download:
        choose_action(page, "Heart", "Export")
    assert download.value.suggested_filename == "Heart.safetensors"
    file = tmp_path / "Heart.safetensors"
    download.value.save_as(file)
    assert file.read_bytes() == (page.folder / "Heart.safetensors").read_bytes()
    choose(page, file)
    answer(page, "Heart 2")
    row(page, "Heart 2").wait_for()
    assert names(page) == ["Far", "Heart", "Heart 2"]
    odd = tmp_path / "odd.safetensors"
    odd.write_bytes(b"\x80\x04N.")
    choose(page, odd)
    page.page.get_by_text("voice file odd.safetensors is damaged").first.wait_for()
    assert names(page) == ["Far", "Heart", "Heart 2"]
    assert [refused.split()[0] for refused in page.refused if "/morph/" in refused] == ["400"]
    assert page.problems() == []


def choose(page: ComfyPage, file: Any) -> None:
    with page.page.expect_file_chooser() as chooser:
        page.page.get_by_role("button", name="Import voice files").click()
    chooser.value.set_files(file)


def test_the_panel_is_chinese_if_the_locale_is_chinese(todays_server, browser) -> None:
    todays_server.set_page_setting("Comfy.Locale", "zh")
    try:
        with browser.open(todays_server) as page:
            page.page.evaluate(TOGGLE)
            page.page.locator(".morph-voices h3", has_text="音色库").wait_for()
            assert page.problems() == []
    finally:
        todays_server.set_page_setting("Comfy.Locale", "en")

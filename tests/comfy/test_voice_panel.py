"""The voice library in ComfyUI's sidebar: hear, rename, describe, export, import and delete, as a user does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from tests.comfy.examples import BOTH_PAGES, CLASSIC, NODES_2, PAGES, set_live_sound

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
# The page's one Audio element: it notes what it is to play, and plays nothing.
STUB = """() => {
  window.__played = []
  window.Audio = class extends EventTarget {
    pause() {}
    async play() {
      const answer = await fetch(this.src)
      if (!answer.ok) throw new Error(this.src)
      window.__played.push(this.src)
    }
  }
}"""
CHANGED = "() => window.app.api.dispatchCustomEvent('status', {exec_info: {queue_remaining: 0}})"


@pytest.fixture(params=BOTH_PAGES)
def page(request: pytest.FixtureRequest, browser: ComfyBrowser) -> Iterator[ComfyPage]:
    """A page with the library open; Heart is a speaker of the demo voice, Far fits no checkpoint that is here."""
    import torch
    from qwen3_tts_morph.morph.voice.file import save_voice
    from qwen3_tts_morph.morph.voice.voice import Voice

    name, nodes_2 = PAGES[request.param]
    server: ComfyServer = request.getfixturevalue(name)
    folder = server.base_dir / LIBRARY
    folder.mkdir(parents=True, exist_ok=True)
    aside = {path: path.read_bytes() for path in folder.glob("*.safetensors")}
    for path in aside:
        path.unlink()
    save_voice(
        Voice("preset", "0b02", "Heart", speaker="heart"), folder / "Heart.safetensors", "a warm voice"
    )
    save_voice(Voice("x_vector", "9b", "Far", torch.ones(8)), folder / "Far.safetensors")
    with browser.open(server, nodes_2=nodes_2) as opened:
        opened.folder, opened.server = folder, server
        opened.page.evaluate(STUB)
        opened.page.evaluate(TOGGLE)
        rows(opened).first.wait_for()
        yield opened
    for path in folder.glob("*.safetensors"):
        path.unlink()
    for path, data in aside.items():
        path.write_bytes(data)


def rows(page: ComfyPage) -> Locator:
    return page.page.locator(".morph-voices .morph-voice")


def row(page: ComfyPage, name: str) -> Locator:
    return rows(page).filter(has=page.page.locator("strong", has_text=name))


def press(page: ComfyPage, name: str, action: str) -> None:
    row(page, name).get_by_role("button", name=action, exact=True).click()


def answer(page: ComfyPage, text: str) -> None:
    """Type into ComfyUI's own dialog, and confirm."""
    field = page.page.locator("[role=dialog] input:visible").last
    field.fill(text)
    field.press("Enter")


def names(page: ComfyPage) -> list[str]:
    return sorted(path.stem for path in page.folder.glob("*.safetensors"))


@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_a_voice_is_heard_through_the_queue_and_again_without_it(page: ComfyPage, screenshots: Path) -> None:
    first = row(page, "Heart")
    assert "demo voice with heart" in first.inner_text() and "a warm voice" in first.inner_text()
    far = row(page, "Far").get_by_role("button").first
    assert far.is_disabled() and "needs 9b Base" in str(far.get_attribute("title"))
    page.screenshot(screenshots / "voice library.png")
    press(page, "Heart", "Hear it")
    page.page.locator(".morph-live-bar .morph-live").wait_for()  # it sounds while it is made
    page.page.locator(".morph-voices .pi-spinner").wait_for(state="hidden")
    assert page.page.evaluate("() => window.__played") == [], "it was heard twice"
    runs = len(page.server.get("/history"))
    press(page, "Heart", "Hear it")
    page.page.wait_for_function("() => window.__played.length === 1")
    assert len(page.server.get("/history")) == runs, "it was queued again"
    set_live_sound(page, False)
    try:
        page.page.get_by_label("What they say").fill("Good morning to all of you.")
        press(page, "Heart", "Hear it")
        page.page.wait_for_function("() => window.__played.length === 2")
    finally:
        set_live_sound(page, True)
    assert len(set(page.page.evaluate("() => window.__played"))) == 2
    newest = max(page.server.base_dir.glob("temp/*.flac"), key=lambda path: path.stat().st_mtime_ns)
    samples, rate = soundfile.read(newest)
    assert rate == 24000 and len(samples) > rate and np.abs(samples).max() > 0.05
    assert page.problems() == []


@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_a_hearing_that_is_removed_from_the_queue_waits_no_longer(page: ComfyPage) -> None:
    """Held up at the route, so that it is there for as long as the test needs it."""
    page.page.route(
        "**/prompt", lambda route: route.fulfill(json={"prompt_id": "x", "number": 1, "node_errors": {}})
    )
    page.page.route("**/queue", lambda route: route.fulfill(json=queue))
    queue: dict[str, Any] = {"queue_running": [], "queue_pending": []}
    spinner = page.page.locator(".morph-voices .pi-spinner")
    with page.page.expect_request("**/prompt") as asked:
        press(page, "Heart", "Hear it")
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


@pytest.mark.parametrize("page", CLASSIC, indirect=True)
def test_a_renamed_voice_is_renamed_in_the_open_workflow(page: ComfyPage) -> None:
    page.page.evaluate(ADD_LOADER, "Heart")
    press(page, "Heart", "Rename")
    answer(page, "Anna")
    row(page, "Anna").wait_for()
    assert names(page) == ["Anna", "Far"]
    page.page.get_by_text("Heart is now Anna").first.wait_for()
    value, options = page.page.evaluate(LOADER)
    assert value == "Anna" and options == ["Anna", "Far"]
    press(page, "Anna", "Rename")
    answer(page, "Far")
    page.page.get_by_text("a voice named 'Far' already exists").first.wait_for()
    assert names(page) == ["Anna", "Far"] and page.problems() == []


@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_a_description_is_kept(page: ComfyPage) -> None:
    press(page, "Far", "Describe")
    answer(page, "from far <b>away</b>")
    row(page, "Far").get_by_text("from far <b>away</b>").wait_for()
    page.page.evaluate(TOGGLE)
    page.page.evaluate(TOGGLE)
    row(page, "Far").get_by_text("from far <b>away</b>").wait_for()
    assert page.problems() == []


@pytest.mark.parametrize("page", CLASSIC, indirect=True)
def test_deleting_asks(page: ComfyPage) -> None:
    press(page, "Far", "Delete")
    dialog = page.page.locator("[role=dialog]").filter(has_text="cannot be undone")
    dialog.wait_for()
    page.page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert names(page) == ["Far", "Heart"]
    press(page, "Far", "Delete")
    dialog.get_by_role("button", name="Delete").click()
    row(page, "Far").wait_for(state="hidden")
    assert names(page) == ["Heart"] and page.problems() == []


@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_a_voice_is_exported_and_imported_under_another_name(page: ComfyPage, tmp_path: Path) -> None:
    with page.page.expect_download() as download:
        press(page, "Heart", "Export")
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


def test_the_panel_is_chinese_if_the_locale_is_chinese(
    todays_server: ComfyServer, browser: ComfyBrowser
) -> None:
    todays_server.set_page_setting("Comfy.Locale", "zh")
    try:
        with browser.open(todays_server) as page:
            page.page.evaluate(TOGGLE)
            page.page.locator(".morph-voices h3", has_text="音色库").wait_for()
            assert page.problems() == []
    finally:
        todays_server.set_page_setting("Comfy.Locale", "en")

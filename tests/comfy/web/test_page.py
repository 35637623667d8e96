"""What a user sees on ComfyUI's page: error messages, cancellation, the templates, the help."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from tests.comfy import graphs
from tests.comfy.conftest import PACK_NAME
from tests.comfy.examples import (
    FOLDER,
    MARK,
    NAMES,
    place_own_files,
    read_old_workflow,
    read_workflow,
    set_widget,
)

if TYPE_CHECKING:
    from tests.comfy.page import ComfyBrowser, ComfyPage
    from tests.comfy.server import ComfyServer

CLONE = "Clone a voice and speak"
SPEECH, VOICE, MODEL = "MorphTTSGenerateSpeech", "MorphTTSCloneVoice", "MorphTTSLoadModel"
TEMPLATES = "() => window.app.extensionManager.command.execute('Comfy.BrowseTemplates')"
SELECT = "(kind) => window.app.canvas.selectNode(window.app.graph.nodes.find((n) => n.type === kind))"


@pytest.fixture(scope="module", autouse=True)
def user_files(base_dir: Path, model_folders: Path) -> None:
    graphs.place_checkpoints(model_folders)
    place_own_files(base_dir / "input")
    soundfile.write(base_dir / "input" / "silent.wav", np.zeros(48000), 24000)


@pytest.fixture(scope="module")
def opened(server: ComfyServer, browser: ComfyBrowser) -> Iterator[ComfyPage]:
    """One page for all tests of 0.3.75: to open it takes longer than most of them."""
    with browser.open(server) as page:
        yield page


@pytest.fixture
def page(opened: ComfyPage) -> ComfyPage:
    opened.page.evaluate("() => { window.__ended = [] }")
    return opened


@pytest.fixture(scope="module")
def seeds() -> Any:
    return iter(range(1000, 2000))


def check_next_run(page: ComfyPage, seed: int) -> None:
    page.load(read_workflow(CLONE))
    set_widget(page, SPEECH, "seed", seed)
    kind, data = page.run()
    assert kind == "execution_success", data


def see(page: ComfyPage, sentence: str) -> None:
    page.page.get_by_text(sentence).filter(visible=True).first.wait_for()


WITH_RECORDING = read_old_workflow(CLONE)  # today's clones the pack's own recording, whose words are known
BAD_INPUTS = {
    "empty text": (read_workflow(CLONE), (SPEECH, "text", " "), "text is empty: type what is to be spoken"),
    "silent recording": (WITH_RECORDING, ("LoadAudio", "audio", "silent.wav"), "reference is silent"),
    "ICL without words": (WITH_RECORDING, (VOICE, "mode", "ICL"), "transcript is empty: ICL needs the words"),
    "wrong checkpoint": (
        read_workflow(CLONE),
        (MODEL, "checkpoint", "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"),
        "is a CustomVoice checkpoint and cannot clone voices: load a Base checkpoint",
    ),
    "unknown character": (
        read_workflow("Dialogue to files, track and subtitles"),
        ("MorphTTSRenderScript", "script", "CARL: Who am I?"),
        "'CARL' is not in the cast: choose from ",  # BEN, CLARA, NARRATOR, and every voice that another test saved
    ),
}


# test_bad_input.py checks all messages. By default, this checks one on the page.
BY_DEFAULT = "unknown character"


@pytest.mark.parametrize(
    "case",
    [case if case == BY_DEFAULT else pytest.param(case, marks=pytest.mark.slow) for case in BAD_INPUTS],
)
def test_bad_input_shows_its_message_on_the_page_and_the_next_run_works(
    page: ComfyPage, seeds: Any, screenshots: Path, case: str
) -> None:
    workflow, widget, sentence = BAD_INPUTS[case]
    page.load(workflow)
    set_widget(page, *widget)
    assert sentence in page.fail()
    page.screenshot(screenshots / f"error, {case}.png")
    page.page.keyboard.press("Escape")
    check_next_run(page, next(seeds))


def test_the_template_browser_shows_the_workflows_and_opens_one(server, page, screenshots) -> None:
    assert sorted(server.get("/workflow_templates")[PACK_NAME]) == [MARK + name for name in NAMES]
    for name in NAMES:
        for path in (FOLDER / f"{MARK}{name}.json", FOLDER / f"{MARK}{name}.jpg"):
            served = server.get(f"/api/workflow_templates/{PACK_NAME}/{urllib.parse.quote(path.name)}")
            assert served == read_as_served(path)
    page.page.evaluate("() => window.app.graph.clear()")
    page.page.evaluate(TEMPLATES)
    listed = page.page.evaluate("() => window.app.api.getWorkflowTemplates()")[PACK_NAME]
    assert listed == [MARK + name for name in NAMES], "the first is where to start"
    choose_pack(page)
    page.page.locator("[role=dialog] input:visible").first.fill("qwen3 tts")
    for name in NAMES:
        see(page, name)
    page.page.wait_for_load_state("networkidle")
    page.screenshot(screenshots / "templates.png")
    page.page.get_by_text(CLONE).first.click()
    page.page.wait_for_function(f"() => window.app.graph.nodes.some((n) => n.type === '{VOICE}')")


def choose_pack(page: ComfyPage) -> None:
    """Choose the pack's templates in the browser, which shows ComfyUI's own first where these are installed."""
    own = page.page.get_by_text(PACK_NAME, exact=True)
    own.or_(page.page.get_by_text(NAMES[0])).filter(visible=True).first.wait_for()
    if own.count():
        own.last.click()


def read_as_served(path: Path) -> Any:
    """Return a file's contents as ``ComfyServer.get`` returns them."""
    from tests.comfy.server import decode

    return path.read_bytes() if path.suffix == ".jpg" else decode(path.read_bytes())


def open_help(page: ComfyPage, words: str) -> None:
    page.page.evaluate(SELECT, SPEECH)
    page.page.get_by_test_id("info-button").click()
    see(page, words)


def test_the_help_button_opens_the_nodes_help(page: ComfyPage, screenshots: Path) -> None:
    page.load(read_workflow(CLONE))
    open_help(page, "How SEQ_GROUPS works")
    page.screenshot(screenshots / "help.png")


def test_nodes_and_their_help_are_chinese_if_the_locale_is_chinese(
    todays_server: ComfyServer, new_page: Callable[..., ComfyPage], screenshots: Path
) -> None:
    """Uses the current frontend: that of 0.3.75 drops all packs' texts when it loads a language other than English."""
    todays_server.set_page_setting("Comfy.Locale", "zh")
    try:
        page = new_page(todays_server)
        nodes = page.load(read_workflow(CLONE))["nodes"]
        assert "生成语音" in [node["title"] for node in nodes]
        open_help(page, "SEQ_GROUPS 的原理")
        page.screenshot(screenshots / "help in Chinese.png")
    finally:
        todays_server.set_page_setting("Comfy.Locale", "en")
        todays_server.set_page_setting("Comfy.RightSidePanel.IsOpen", False)

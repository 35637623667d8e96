"""Trim Recording in the real ComfyUI: the best part, a chosen one, and the waveform's handles on both canvases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from tests.comfy import graphs
from tests.comfy.examples import NODES_2, PAGES, run, set_live_sound
from tests.morph.voice.made_speech import RATE, clip, hush, phrase

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.comfy.page import ComfyBrowser, ComfyPage
    from tests.comfy.server import ComfyServer, Result

KIND = "MorphTTSTrimRecording"
FILE = "interview.wav"
SECONDS = 22.5
# Load Audio, and the node behind it, in a workflow that was cleared as a user does.
ADD = """async ([file, kind]) => {
  const {extensionManager, graph} = window.app
  await extensionManager.command.execute('Comfy.ClearWorkflow')
  const [load, trim] = ['LoadAudio', kind].map((type) => window.LiteGraph.createNode(type))
  for (const node of [load, trim]) graph.add(node)
  load.widgets.find((widget) => widget.name === 'audio').value = file
  load.pos = [100, 120]
  trim.pos = [520, 120]
  load.connect(0, trim, 'audio')
  window.app.canvas.ds.scale = 1.2
  window.app.canvas.ds.offset = [0, 0]
  window.app.canvas.setDirty(true, true)
}"""
NODE = f"window.app.graph.nodes.find((node) => node.type === '{KIND}')"
NUMBERS = f"() => {NODE}.widgets.slice(0, 2).map((widget) => widget.value)"
TYPE_NUMBERS = f"""(values) => {{
  for (const [n, value] of values.entries()) {{
    const widget = {NODE}.widgets[n]
    widget.value = value
    widget.callback?.(value)
  }}
  window.app.canvas.setDirty(true, true)
}}"""
SAVED = f"""async () => {{
  const {{output, workflow}} = await window.app.graphToPrompt()
  return [workflow.nodes.find((node) => node.type === '{KIND}').widgets_values,
          Object.keys(Object.values(output).find((node) => node.class_type === '{KIND}').inputs).sort()]
}}"""
UNDO = """async () => {
  const {changeTracker} = window.app.extensionManager.workflow.activeWorkflow
  await changeTracker.undo()
}"""
# An audio element whose clock a test moves.
STUB = """() => {
  window.__played = []
  window.Audio = class {
    paused = true; ended = false; currentTime = 0
    play() {
      this.paused = false
      window.__played.push([this.src.includes('recording.flac'), this.currentTime])
      this.onplaying?.()
      return Promise.resolve()
    }
    pause() { this.paused = true; this.onpause?.() }
    constructor() { window.__audio = this }
  }
}"""


def place_interview(input_folder: Path) -> None:
    """Write a recording with a clipped phrase, and 8 s of good speech behind it."""
    input_folder.mkdir(parents=True, exist_ok=True)
    parts = [hush(2), clip(phrase(5.0) * 4, 0.6), hush(2), phrase(4.0), hush(0.5), phrase(4.0), hush(5)]
    soundfile.write(input_folder / FILE, np.concatenate(parts), RATE)


def trim(server: ComfyServer, start: float = 0.0, end: float = 0.0) -> Result:
    graph = {
        "recording": graphs.node("LoadAudio", audio=FILE),
        "trim": graphs.node(KIND, audio=["recording", 0], start=start, end=end),
        "file": graphs.node("SaveAudio", audio=["trim", 0], filename_prefix="trimmed"),
    }
    return run(server, graph)


def written(result: Result) -> float:
    """Return the seconds of the file that Save Audio wrote."""
    [file] = [one for one in result.files if one.node_id == "file"]
    return soundfile.info(file.path).duration


def test_the_best_part_or_the_numbers_own_goes_on_and_is_told(server: ComfyServer, base_dir: Path) -> None:
    place_interview(base_dir / "input")
    result = trim(server)
    [shown] = result.outputs["trim"]["morph_trim"]
    assert shown["best"] == shown["part"] == [pytest.approx(8.9, abs=0.05), pytest.approx(17.75, abs=0.05)]
    assert written(result) == pytest.approx(shown["part"][1] - shown["part"][0], abs=0.02)
    assert shown["faults"] == ["clipped"] and shown["seconds"] == SECONDS and len(shown["shape"]) == 600
    assert all(2 <= moment <= 7 for moment in shown["clipped"])
    preview = base_dir / shown["type"] / shown["subfolder"] / shown["filename"]
    assert soundfile.info(preview).duration == SECONDS
    assert graphs.shown(result, "trim").startswith("the best part: 8.9")
    chosen = trim(server, 3.0, 6.5)
    assert written(chosen) == pytest.approx(3.5)
    said = graphs.shown(chosen, "trim").splitlines()
    assert said[0] == "3.00 to 6.50 s of 22.50 s, 3.50 s long" and "it is clipped: " in said[-1]


def test_clone_voice_says_where_a_part_is_better(server, base_dir, model_folders) -> None:
    graphs.place_checkpoints(model_folders)
    place_interview(base_dir / "input")
    graph = graphs.cloned_voice(audio=["recording", 0]) | {"save": graphs.node("MorphTTSSaveVoice", voice=["voice", 0])}
    graph["recording"]["inputs"]["audio"] = FILE
    graph["save"]["inputs"] |= {"name": "interviewed", "overwrite": True}
    said = graphs.shown(run(server, graph), "voice").splitlines()
    assert said[1].startswith("8.9") and said[1].endswith("make a better voice: Trim Recording takes them out")
    trim_node = graphs.node(KIND, audio=["recording", 0], start=0.0, end=0.0)
    graph["voice"]["inputs"]["audio"] = ["trim", 0]
    assert "Trim Recording" not in graphs.shown(run(server, graph | {"trim": trim_node}), "voice")


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: ComfyBrowser) -> Iterator[ComfyPage]:
    name, nodes_2 = PAGES[request.param]
    server: ComfyServer = request.getfixturevalue(name)
    place_interview(server.base_dir / "input")
    with browser.open(server, nodes_2=nodes_2) as opened:
        opened.label = request.param
        opened.page.evaluate(STUB)
        set_live_sound(opened, False)
        opened.page.evaluate(ADD, [FILE, KIND])
        yield opened
        set_live_sound(opened, True)


def handle(page: ComfyPage, name: str) -> Locator:
    return page.page.locator(f".morph-trim-handle[aria-label={name}]")


def drag(page: ComfyPage, name: str, to: float, view: tuple[float, float] = (0, SECONDS)) -> None:
    """Drag a handle to a moment of the recording, whose ``view`` is shown."""
    wave, own = page.page.locator(".morph-trim-wave").bounding_box(), handle(page, name).bounding_box()
    assert wave and own
    y = own["y"] + own["height"] / 2
    page.page.mouse.move(own["x"] + own["width"] / 2, y)
    page.page.mouse.down()
    page.page.mouse.move(wave["x"] + wave["width"] * (to - view[0]) / (view[1] - view[0]), y, steps=4)
    page.page.mouse.up()


def numbers(page: ComfyPage) -> Any:
    return page.page.evaluate(NUMBERS)


@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_handles_set_the_numbers_and_the_part_is_played(page: ComfyPage, screenshots: Path) -> None:
    kind, data = page.run()
    assert kind == "execution_success", data
    times = page.page.locator(".morph-trim-times")
    times.wait_for()
    assert times.text_content().startswith("8.9") and numbers(page) == [0, 0]
    assert page.page.locator(".morph-trim-wrong").text_content().startswith("Clipped ")
    page.settle()
    page.screenshot(screenshots / f"trim recording, best part ({page.label}).png")

    drag(page, "Start", 12.0)
    start, end = numbers(page)
    assert start == pytest.approx(12.0, abs=0.2) and end == pytest.approx(17.75, abs=0.05)
    handle(page, "End").focus()
    page.page.keyboard.press("Shift+ArrowRight")
    page.page.keyboard.press("PageUp")
    assert numbers(page) == [start, pytest.approx(end + 1.01)]
    assert handle(page, "End").get_attribute("aria-valuenow") == f"{end + 1.01:.2f}"
    page.page.evaluate(TYPE_NUMBERS, [10, 0])
    assert times.text_content() == "10.00 to 22.50 s, 12.50 s long"
    page.page.evaluate(TYPE_NUMBERS, [10, 16.5])
    page.settle()
    page.screenshot(screenshots / f"trim recording, chosen part ({page.label}).png")

    page.page.locator(".morph-trim-row button").first.click()
    page.page.evaluate("() => { window.__audio.currentTime = 16.6 }")
    page.page.wait_for_function("() => window.__audio.paused")
    box = page.page.locator(".morph-trim-wave").bounding_box()
    page.page.locator(".morph-trim-wave").click(position={"x": box["width"] / 2, "y": 10})
    assert page.page.evaluate("() => window.__played") == [
        [True, 10],
        [True, pytest.approx(SECONDS / 2, abs=0.2)],
    ]
    page.page.get_by_text("Zoom").click()
    drag(page, "End", 18.0, view=(6.75, 19.75))
    assert numbers(page) == [10, pytest.approx(18.0, abs=0.05)]
    page.settle()
    page.screenshot(screenshots / f"trim recording, zoom ({page.label}).png")
    page.page.evaluate(TYPE_NUMBERS, [10, 16.5])
    kind, data = page.run()
    assert kind == "execution_success" and page.page.evaluate(SAVED) == [
        [10, 16.5],
        ["audio", "end", "start"],
    ]
    page.page.get_by_text("Best part").click()
    assert numbers(page) == [0, 0] and times.text_content().startswith("8.9")
    page.page.evaluate(UNDO)
    page.page.wait_for_function(f"() => ({NUMBERS})().join() === '10,16.5'")
    assert page.page.locator(".morph-trim-times").text_content().startswith("10.00 to 16.50 s")
    assert page.problems() == []

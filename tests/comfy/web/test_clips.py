"""The list of recordings on a node: what it shows, what it plays, and the comparison of a Sweep, also blind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.comfy import graphs
from tests.comfy.examples import (
    BOTH_PAGES,
    CLASSIC,
    NODES_2,
    PAGES,
    first_seed,
    read_workflow,
    set_live_sound,
    set_widget,
)
from tests.comfy.examples import run as run_graph

if TYPE_CHECKING:
    from tests.comfy.page import ComfyBrowser, ComfyPage
    from tests.comfy.server import ComfyServer

DIALOGUE, SWEEP = "Dialogue to files, track and subtitles", "SEQ_GROUPS sweep"
SCRIPT = "CLARA: The rain has stopped.\nBEN: Then let us walk.\nCLARA: At once?"
# An audio element whose clock stands still, and which notes what it is to play from where.
STUB = """() => {
  window.__played = []
  window.Audio = class {
    paused = true; ended = false; currentTime = 0
    play() {
      this.paused = this.ended = false
      window.__played.push([decodeURIComponent(this.src), this.currentTime])
      this.onplaying?.()
      return Promise.resolve()
    }
    pause() { this.paused = true; this.onpause?.() }
    finish() { this.paused = this.ended = true; this.onended() }
    constructor() { window.__audio = this }
  }
}"""
# The browser's own, where a test can find it.
REAL = "() => { const Real = window.Audio; window.Audio = function () { return window.__audio = new Real() } }"
REMOVE = """(kind) => {
  const {graph} = window.app
  for (const node of graph.nodes.filter((one) => one.type === kind)) graph.remove(node)
}"""
PLAYED = "() => window.__played"
ROWS = """() => [...document.querySelectorAll('.morph-clip')].map((row) =>
  [row.querySelector('b').textContent, row.querySelector('.morph-clip-words')?.textContent ?? null])"""
# What nodes say of their last run, in text boxes of the pack.
TEXTS = """() => window.app.graph.nodes.filter((node) => node.type.startsWith('MorphTTS'))
  .flatMap((node) => node.widgets ?? []).filter((widget) => widget.type === 'MORPH_TTS_TEXT').map((one) => one.value)"""
# Whether the page has kept the open workflow for a reload; what its nodes showed is kept beside it.
HAS_DRAFT = """(id) => [localStorage, sessionStorage].some((store) => Object.keys(store).some((key) =>
  key !== 'MorphTTS.Clips' && store.getItem(key).includes(id)))"""
ROWS_COUNT = "() => document.querySelectorAll('.morph-clip').length"
HEIGHT = "(kind) => window.app.graph.nodes.find((node) => node.type === kind).size[1]"
LENGTHS = "() => window.__shown.morph_clips.map((clip) => clip.seconds)"
NOTE_SHOWN = """() => window.app.api.addEventListener('executed', ({detail}) => {
  if (detail.output?.morph_clips) window.__shown = detail.output
})"""
FAIL = """([kind, problems]) => {
  const clips = window.__shown.morph_clips.map((clip, n) => ({...clip, problems: n === 1 ? problems : []}))
  window.app.graph.nodes.find((node) => node.type === kind).onExecuted({morph_clips: clips})
}"""
EDIT_AND_UNDO = """async (kind) => {
  const {changeTracker} = window.app.extensionManager.workflow.activeWorkflow
  const find = () => window.app.graph.nodes.find((node) => node.type === kind)
  const before = find()
  const note = () => (changeTracker.captureCanvasState ?? changeTracker.checkState).call(changeTracker)
  note()
  before.title = 'another title'
  note()
  await changeTracker.undo()
  return find() !== before && find().title !== 'another title'
}"""
LOOK_AT = """(kind) => {
  const {ds} = window.app.canvas
  const node = window.app.graph.nodes.find((node) => node.type === kind)
  ds.scale = 1
  ds.offset = [100 - node.pos[0], 100 - node.pos[1]]
  window.app.canvas.setDirty(true, true)
}"""
SEED_ALL = """(seed) => {
  const widgets = window.app.graph.nodes.flatMap((node) => node.widgets ?? [])
  for (const widget of widgets.filter((widget) => widget.name === 'seed')) widget.value = seed
}"""
PLAY = ".morph-clip > button:first-child"
HEAD = ".morph-clips-head button"
SAVER_NODE = "MorphTTSSaveSpeech"
SPEECH, SCRIPT_NODE, SWEEP_NODE = "MorphTTSGenerateSpeech", "MorphTTSRenderScript", "MorphTTSSweep"


def read_dialogue() -> dict[str, Any]:
    """Return the dialogue workflow without its files, which Save Speech lists on its own node."""
    workflow = read_workflow(DIALOGUE)
    for node in workflow["nodes"]:
        if node["type"] == "MorphTTSSaveSpeech":
            node["mode"] = 2  # muted
    return workflow


@pytest.fixture(params=BOTH_PAGES)
def page(request: pytest.FixtureRequest, browser: ComfyBrowser) -> Iterator[ComfyPage]:
    server, nodes_2 = PAGES[request.param]
    with browser.open(request.getfixturevalue(server), nodes_2=nodes_2) as opened:
        opened.server = request.getfixturevalue(server)
        opened.seed = first_seed(request.param)
        opened.page.evaluate(STUB)
        opened.page.evaluate(NOTE_SHOWN)
        set_live_sound(opened, False)
        yield opened
        set_live_sound(opened, True)  # the server keeps settings


def run(page: ComfyPage, seed: int = 0) -> None:
    page.page.evaluate(SEED_ALL, page.seed + seed)
    kind, data = page.run()
    assert kind == "execution_success", data
    page.fit()


def click(page: ComfyPage, selector: str, place: int = 0) -> None:
    # The canvas may scale a node until its buttons are tiny, so the event goes to the element.
    page.page.locator(selector).nth(place).dispatch_event("click")


def reload(page: ComfyPage) -> None:
    from tests.comfy.page import READY

    page.page.reload()
    page.page.wait_for_function(READY)
    page.page.locator(".morph-clip").first.wait_for(state="attached")


@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_a_scripts_lines_are_listed_played_and_named_and_survive_undo_and_reload(page: ComfyPage) -> None:
    page.load(read_dialogue())
    set_widget(page, SCRIPT_NODE, "script", SCRIPT)
    run(page)
    rows = page.page.evaluate(ROWS)
    assert rows == [line.split(": ") for line in SCRIPT.splitlines()]
    click(page, PLAY, 1)
    click(page, HEAD)  # all
    page.page.evaluate("() => window.__audio.finish()")
    assert page.page.evaluate(EDIT_AND_UNDO, SCRIPT_NODE)  # while the second line plays
    page.page.evaluate("() => window.__audio.finish()")
    names = [address.split("filename=")[1].split("&")[0] for address, _ in page.page.evaluate(PLAYED)]
    words = [text.rstrip(".?").replace(" ", "-") for _, text in rows]
    files = [f"{number:03}_{row[0]}_{said}.flac" for number, (row, said) in enumerate(zip(rows, words, strict=True), 1)]
    assert names == [files[1], *files]

    page.page.evaluate(FAIL, [SCRIPT_NODE, ["is silent", "does not fit its caption"]])
    page.page.locator(".morph-clip em").first.wait_for(state="attached")  # Nodes 2.0 draws later
    assert page.page.locator(".morph-clip em").all_text_contents() == ["is silent, does not fit its caption"]
    reload(page)
    assert page.page.evaluate(ROWS) == rows
    link = page.page.locator(".morph-clip a").nth(2)
    assert link.get_attribute("download") == files[2]
    answer = page.page.request.get(link.evaluate("(link) => link.href"))
    assert answer.ok and answer.body()[:4] == b"fLaC"
    assert page.problems() == []


@pytest.mark.slow
@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_a_workflow_that_is_opened_during_a_run_gets_none_of_its_recordings(page: ComfyPage) -> None:
    """Its nodes have the same ids and types; what the run made is there when its own workflow is opened again."""
    workflow = {**read_dialogue(), "id": "0c9f2a52-6a0e-4c1b-8d3f-0000000000fe"}  # a user's own keeps its id
    other = {**workflow, "id": "0c9f2a52-6a0e-4c1b-8d3f-0000000000ff"}
    page.load(workflow)
    page.page.evaluate(SEED_ALL, page.seed + 40)
    set_live_sound(page, True)
    page.page.evaluate("() => { window.app.queuePrompt(0) }")
    page.page.locator(".morph-live").first.wait_for(state="attached")  # it speaks
    page.load(other)
    page.page.wait_for_function("() => window.__ended.length > 0")
    assert page.page.evaluate("() => window.__ended.at(-1)[0]") == "execution_success"
    page.page.wait_for_timeout(500)
    assert page.page.evaluate(ROWS) == [] and page.page.evaluate(TEXTS) == []
    page.load(workflow)
    page.page.wait_for_function("() => document.querySelectorAll('.morph-clip').length === 6")
    page.page.evaluate(SEED_ALL, page.seed + 40)
    assert page.run()[0] == "execution_success", "its own runs are shown"
    assert page.page.evaluate(TEXTS) != []


@pytest.mark.slow
@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_another_copy_of_a_template_starts_empty_and_a_reload_does_not(page: ComfyPage) -> None:
    template = read_workflow("1 Start here")
    page.load(template)
    set_widget(page, SPEECH, "text", "The rain has stopped.")
    run(page, seed=60)
    assert page.page.evaluate(ROWS_COUNT) > 0
    page.load(template)
    assert page.page.evaluate(ROWS_COUNT) == 0
    set_widget(page, SPEECH, "text", "The rain has stopped.")
    run(page, seed=61)
    count = page.page.evaluate(ROWS_COUNT)
    own = page.page.evaluate("() => window.app.graph.id")
    page.page.wait_for_function(HAS_DRAFT, arg=own)  # the page keeps its drafts a moment later
    reload(page)
    assert page.page.evaluate(ROWS_COUNT) == count > 0
    assert page.page.evaluate("() => window.app.graph.id") == own != template["id"]
    assert page.problems() == []


@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_save_speech_lists_its_files_folded(page: ComfyPage) -> None:
    page.load(read_workflow(DIALOGUE))
    set_widget(page, SCRIPT_NODE, "script", SCRIPT)
    run(page, seed=80)
    page.page.locator(".morph-clip").first.wait_for(state="attached")
    lists = page.page.locator(".morph-clips")
    of_files = lists.filter(has=page.page.locator(".morph-clips-fold"))
    assert (lists.count(), of_files.count()) == (2, 1)
    rows = of_files.locator(".morph-clips-rows")
    assert (
        rows.evaluate("(rows) => rows.hidden")
        and "3 lines, " in of_files.inner_text()
        and "and the track" in of_files.inner_text()
    )
    before = page.page.evaluate(HEIGHT, SAVER_NODE)
    of_files.locator(".morph-clips-fold").dispatch_event("click")
    assert not rows.evaluate("(rows) => rows.hidden")
    assert rows.locator("b").all_text_contents() == ["CLARA", "BEN", "CLARA", "track"]
    of_files.locator(".morph-clips-fold").dispatch_event("click")
    page.settle()
    assert rows.evaluate("(rows) => rows.hidden") and page.page.evaluate(HEIGHT, SAVER_NODE) == before
    assert page.problems() == []


@pytest.mark.slow
@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_clips_of_a_sweep_go_on_at_the_same_moment_and_can_be_compared_blind(page: ComfyPage) -> None:
    page.load(read_workflow(SWEEP))
    page.page.evaluate(REMOVE, SAVER_NODE)  # its list has the same clips
    set_widget(page, SWEEP_NODE, "seq_groups", "1, 5, 15")
    set_widget(page, SWEEP_NODE, "text", "The rain has stopped.")
    run(page)
    assert [name for name, _ in page.page.evaluate(ROWS)] == [f"SEQ_GROUPS {groups}" for groups in (1, 5, 15)]
    first, _, last = page.page.evaluate(LENGTHS)
    click(page, PLAY, 0)
    page.page.evaluate("() => { window.__audio.currentTime = 0.4 }")
    click(page, PLAY, 2)
    click(page, PLAY, 2)  # pause
    click(page, PLAY, 2)
    moment = pytest.approx(0.4 * last / first)
    assert [at for _, at in page.page.evaluate(PLAYED)] == [0, moment, moment]

    click(page, HEAD, 1)
    assert [name for name, _ in page.page.evaluate(ROWS)] == ["A", "B", "C"]
    shown = page.page.locator(".morph-clips-rows").inner_html()
    assert "flac" not in shown and " s<" not in shown  # neither file nor length
    assert {titles.split(" is ")[1] for titles in re.findall('title="(. is [^"]*)"', shown)} == {"SEQ_GROUPS 15"}
    click(page, PLAY, 0)
    is_right = "SEQ-GROUPS-15" in page.page.evaluate(PLAYED)[-1][0]
    status = page.page.locator(".morph-clips-status")
    assert status.text_content() == "Which one is SEQ_GROUPS 15?"
    page.page.get_by_text("This one").first.dispatch_event("click")
    verdict = status.text_content()
    assert verdict.startswith("Right: it is A." if is_right else "No: it is ")
    assert f"{int(is_right)} of 1 right" in verdict and "15" in verdict
    assert page.page.locator(".morph-clip-words").count() == 3
    assert page.problems() == []


@pytest.mark.slow
@pytest.mark.parametrize("page", CLASSIC, indirect=True)
def test_a_real_player_goes_on_in_another_clip_falls_silent_for_others_and_says_what_is_gone(page) -> None:
    page.load(read_workflow("1 Start here"))
    set_widget(page, SPEECH, "text", "The rain has stopped, and the wind with it.")
    run(page)
    reload(page)
    page.page.evaluate(REAL)
    page.page.evaluate(LOOK_AT, SPEECH)
    page.page.locator(PLAY).first.focus()
    page.page.keyboard.press("Enter")
    page.page.wait_for_function("() => window.__audio.currentTime > 0.1")
    page.page.evaluate("() => document.body.append(document.createElement('audio'))")
    page.page.evaluate("() => document.querySelector('body > audio').dispatchEvent(new Event('play'))")
    assert page.page.evaluate("() => window.__audio.paused")
    for file in (page.server.base_dir / "temp").glob("speech_*/*"):
        file.unlink()
    click(page, PLAY, page.page.locator(PLAY).count() - 1)  # of another node: not loaded yet
    page.page.get_by_text("run the node again").first.wait_for(state="attached")
    page.errors = [error for error in page.errors if "404" not in error]
    assert page.problems() == []


WORDS = [["One", 0.0, 0.3], [" two,", 0.4, 0.6], [" three", 1.0, 1.2]]
LIST = """([kind, clips]) => {
  window.app.graph.nodes.find((node) => node.type === kind).onExecuted({morph_clips: clips})
}"""
# The words, the one that is heard now, and how many have been.
LIT = """() => {
  const lit = document.querySelector('.morph-lit')
  const now = [...lit.querySelectorAll('.morph-lit-now')].map((word) => word.textContent)
  return [lit.textContent, now, lit.querySelectorAll('.morph-lit-heard').length]
}"""


@pytest.mark.parametrize("page", CLASSIC, indirect=True)  # test_live.py has them in Nodes 2.0
def test_words_light_up_as_they_are_heard_and_a_click_plays_from_there(page, screenshots) -> None:
    page.load(read_workflow("1 Start here"))
    clip = {
        "filename": "a.flac", "subfolder": "", "type": "temp", "name": "", "text": "One two, three",
        "seconds": 1.5, "problems": [],
    }  # fmt: skip
    page.page.evaluate(LIST, [SPEECH, [{**clip, "words": WORDS}]])
    page.page.locator(".morph-lit-word").nth(2).wait_for(state="attached")
    assert page.page.evaluate(LIT) == ["One two, three", [], 0]
    click(page, ".morph-lit-word", 1)
    page.page.wait_for_function(f"() => ({LIT})()[1][0] === 'two,'")
    assert page.page.evaluate(LIT)[2] == 2 and page.page.evaluate(PLAYED)[-1][1] == 0.4
    page.screenshot(screenshots / "words light up.png")
    page.page.evaluate("() => { window.__audio.currentTime = 0.7 }")
    page.page.wait_for_function(f"() => !({LIT})()[1].length")
    click(page, ".morph-lit-word", 0)
    page.page.wait_for_function(f"() => ({LIT})()[1][0] === 'One'")
    assert len(page.page.evaluate(PLAYED)) == 1, "the same sound goes on"
    page.page.evaluate("() => window.__audio.finish()")
    click(page, ".morph-lit-word", 2)
    assert page.page.evaluate(PLAYED)[-1][1] == 1.0

    page.page.evaluate(LIST, [SPEECH, [clip]])
    page.page.wait_for_function("() => !document.querySelector('.morph-lit')")
    assert page.page.evaluate(ROWS_COUNT) == 1 and page.problems() == []


def test_files_say_which_line_failed(server: ComfyServer, model_folders: Path, base_dir: Path) -> None:
    graphs.place_checkpoints(model_folders)
    graphs.place_recordings(base_dir / "input")
    shown = run_graph(server, graphs.speech(text="One two three.")).outputs["speech"]["morph_clips"]
    assert [(one["filename"], one["problems"]) for one in shown] == [("001_One-two-three.flac", ["ran into its limit"])]
    assert (base_dir / "temp" / shown[0]["subfolder"] / shown[0]["filename"]).is_file()

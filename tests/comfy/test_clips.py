"""The list of recordings on a node: what it shows, what it plays, and the comparison of a Sweep, also blind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.comfy.examples import PAGES, read_workflow, set_widget

if TYPE_CHECKING:
    from tests.comfy.page import ComfyBrowser, ComfyPage

DIALOGUE, SWEEP = "Dialogue to files, track and subtitles", "SEQ_GROUPS sweep"
SCRIPT = "CLARA: The rain has stopped.\nBEN: Then let us walk.\nCLARA: At once?"
# An audio element whose clock stands still, and which notes what it is to play from where.
STUB = """() => {
  window.__played = []
  window.Audio = class {
    paused = true; ended = false; currentTime = 0
    play() {
      this.paused = false
      window.__played.push([decodeURIComponent(this.src), this.currentTime])
      this.onplaying?.()
      return Promise.resolve()
    }
    pause() { this.paused = true; this.onpause?.() }
    finish() { this.paused = true; this.ended = true; this.onended() }
    constructor() { window.__audio = this }
  }
}"""
LIVE = "async (on) => await window.app.extensionManager.setting.set('MorphTTS.LiveSound', on)"
PLAYED = "() => window.__played"
ROWS = """() => [...document.querySelectorAll('.morph-clip')].map((row) =>
  [row.querySelector('b').textContent, row.querySelector('.morph-clip-words')?.textContent ?? null])"""


@pytest.fixture(params=["0.3.75", pytest.param("today", marks=pytest.mark.slow), "Nodes 2.0"])
def page(request: pytest.FixtureRequest, browser: ComfyBrowser) -> Iterator[ComfyPage]:
    server, nodes_2 = PAGES[request.param]
    with browser.open(request.getfixturevalue(server), nodes_2=nodes_2) as opened:
        opened.page.evaluate(STUB)
        opened.page.evaluate(LIVE, False)
        yield opened
        opened.page.evaluate(LIVE, True)  # the server keeps settings


def run(page: ComfyPage) -> None:
    kind, data = page.run()
    assert kind == "execution_success", data
    page.fit()


def click(page: ComfyPage, selector: str, place: int = 0) -> None:
    # The canvas may scale a node until its buttons are tiny, so the event goes to the element.
    page.page.locator(selector).nth(place).dispatch_event("click")


def test_a_scripts_lines_are_listed_played_and_named(page: ComfyPage) -> None:
    page.load(read_workflow(DIALOGUE))
    set_widget(page, "MorphTTSRenderScript", "script", SCRIPT)
    run(page)
    rows = page.page.evaluate(ROWS)
    assert rows == [line.split(": ") for line in SCRIPT.splitlines()]
    click(page, ".morph-clip > .morph-clip-button", 2)  # each row has play and download
    click(page, ".morph-clips-head button")
    for _ in range(2):
        page.page.evaluate("() => window.__audio.finish()")
    names = [address.split("filename=")[1].split("&")[0] for address, _ in page.page.evaluate(PLAYED)]
    words = [text.rstrip(".?").replace(" ", "-") for _, text in rows]
    files = [
        f"{number:03}_{row[0]}_{said}.flac"
        for number, (row, said) in enumerate(zip(rows, words, strict=True), 1)
    ]
    assert names == [files[1], *files]
    assert page.problems() == []


def test_a_clip_can_be_downloaded_under_its_name(page: ComfyPage) -> None:
    page.load(read_workflow("1 Start here - preset speakers"))
    run(page)
    link = page.page.locator(".morph-clip a").first
    answer = page.page.request.get(link.evaluate("(link) => link.href"))
    assert answer.ok and answer.body()[:4] == b"fLaC"
    assert link.get_attribute("download").startswith("001_")


def test_clips_of_a_sweep_go_on_at_the_same_moment_and_can_be_compared_blind(page: ComfyPage) -> None:
    page.load(read_workflow(SWEEP))
    set_widget(page, "MorphTTSSweep", "seq_groups", "1, 5, 15")
    set_widget(page, "MorphTTSSweep", "text", "The rain has stopped.")
    run(page)
    assert [name for name, _ in page.page.evaluate(ROWS)] == [f"SEQ_GROUPS {groups}" for groups in (1, 5, 15)]
    click(page, ".morph-clip > .morph-clip-button", 0)
    page.page.evaluate("() => { window.__audio.currentTime = 0.4 }")
    click(page, ".morph-clip > .morph-clip-button", 2)
    assert [at for _, at in page.page.evaluate(PLAYED)] == [0, 0.4]

    click(page, ".morph-clips-head button", 1)
    assert [name for name, _ in page.page.evaluate(ROWS)] == ["A", "B", "C"]
    rows = page.page.locator(".morph-clips-rows").inner_html()
    assert "SEQ_GROUPS" not in rows.replace("is SEQ_GROUPS 15?", "") and "flac" not in rows
    assert page.page.locator(".morph-clips-note").inner_text() == "Which one is SEQ_GROUPS 15?"
    page.page.locator(".morph-clip button", has_text="this one").first.dispatch_event("click")
    verdict = page.page.locator(".morph-clips-note").inner_text()
    assert verdict.startswith(("Right: it was A", "No: it was B", "No: it was C"))
    right = "1" if verdict.startswith("Right") else "0"
    assert verdict.endswith(f"{right} of 1 right.")
    assert page.problems() == []

"""Speech that plays in ComfyUI's page while its node makes it: heard before the run ends, and as it is saved."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

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

if TYPE_CHECKING:
    from tests.comfy.page import ComfyBrowser, ComfyPage
    from tests.comfy.server import ComfyServer

SPEAKERS, DIALOGUE, SWEEP = (
    "1 Start here - preset speakers",
    "Dialogue to files, track and subtitles",
    "SEQ_GROUPS sweep",
)
SPEECH, SCRIPT = "MorphTTSGenerateSpeech", "MorphTTSRenderScript"
TEXT = "The kettle sang in the kitchen, and nobody listened to it."
# An audio context that notes what it is to play, and when: in seconds of its own clock, which runs as the page's.
STUB = """() => {
  const began = performance.now()
  window.__heard = []
  window.__state = window.__state ?? 'running'
  window.__stopped = 0
  window.AudioContext = class {
    constructor({ sampleRate }) { this.sampleRate = sampleRate; this.destination = {} }
    get currentTime() { return (performance.now() - began) / 1000 }
    get state() { return window.__state }
    resume() {
      return new Promise((go) => {
        window.__open = () => { window.__state = 'running'; go() }
        if (window.__state === 'running') go()
      })
    }
    createGain() { return { gain: { value: 1 }, connect() {} } }
    createBuffer(channels, length, rate) {
      return { copyToChannel(samples) { this.samples = samples } }
    }
    createBufferSource() {
      return {
        connect() {}, stop() { window.__stopped++ },
        start(at) {
          window.__heard.push({ at, samples: [...this.buffer.samples], ended: window.__ended.length })
        },
      }
    }
  }
}"""
HEARD = "() => window.__heard.map(({at, samples, ended}) => [at, samples, ended])"
# A player that has ended gives way to its node's list.
ALL_ARRIVED = """() => { const labels = [...document.querySelectorAll('.morph-live span')]
  return window.__labels.size && labels.every((label) => label.textContent && !label.textContent.includes('…')) }"""
ALL_ENDED = "() => window.__labels.size && !document.querySelector('.morph-live')"
# Note every text that the players show, and how many there are in the bar at most.
OBSERVE = """() => {
  window.__labels = new Set()
  window.__bar = 0
  new MutationObserver(() => {
    for (const one of document.querySelectorAll('.morph-live span')) window.__labels.add(one.textContent)
    window.__bar = Math.max(window.__bar, document.querySelectorAll('.morph-live-bar .morph-live').length)
  }).observe(document.body, {childList: true, subtree: true, characterData: true})
}"""
LABELS = "() => [...window.__labels].join('\\n')"
NAMES = """() => {
  window.__names = []
  window.app.api.addEventListener('morph.speech.line', ({detail}) => window.__names.push(detail.name))
  window.__told = []
  window.app.api.addEventListener('morph.speech.words', ({detail}) => window.__told.push(detail))
}"""
TOLD = "() => window.__told"
# The names of the widgets of the nodes that speak.
WIDGETS = """() => window.app.graph.nodes.filter((node) => node.type === 'MorphTTSGenerateSpeech')
  .map((node) => node.widgets.map((widget) => widget.name).filter((name) => !name.startsWith('$$')))"""
# Click the first player; return how many chunks had been heard by then.
CLICK_AND_COUNT = """() => {
  const count = window.__heard.length
  document.querySelector('.morph-live button').click()
  return count
}"""
SHOW_ALL = "() => window.app.extensionManager.command.execute('Comfy.Canvas.FitView')"


@pytest.fixture(params=BOTH_PAGES)
def page(request: pytest.FixtureRequest, browser: ComfyBrowser) -> Iterator[ComfyPage]:
    server, nodes_2 = PAGES[request.param]
    with browser.open(request.getfixturevalue(server), nodes_2=nodes_2) as opened:
        opened.server = request.getfixturevalue(server)
        opened.seed = first_seed(request.param)  # each case adds a number of its own
        opened.page.evaluate(STUB)
        opened.page.evaluate(OBSERVE)
        yield opened


def heard(page: ComfyPage) -> tuple[np.ndarray, list[float], list[int]]:
    """Return the samples that were to be played, when their chunks start, and how many runs had ended by then."""
    chunks = page.page.evaluate(HEARD)
    samples = np.concatenate([np.array(chunk, dtype=np.float64) for _, chunk, _ in chunks])
    lengths = [len(chunk) for _, chunk, _ in chunks]
    starts = [at for at, _, _ in chunks]
    for start, following, length in zip(starts, starts[1:], lengths, strict=False):
        assert following >= start + length / 24000 - 1e-6, "chunks overlap"
    return samples, starts, [ended for _, _, ended in chunks]


def saved(server: ComfyServer, files: int) -> np.ndarray:
    """Return the newest recordings of the server's output folder, joined in the order they were written."""
    paths = sorted(server.base_dir.glob("output/audio/*.flac"), key=lambda path: path.stat().st_mtime_ns)
    return np.concatenate([soundfile.read(path, dtype="float64")[0] for path in paths[-files:]])


def wait_for_the_end(page: ComfyPage) -> None:
    page.page.wait_for_function(ALL_ARRIVED)


@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_a_line_is_heard_before_the_run_ends_as_it_is_saved(page: ComfyPage) -> None:
    page.load(read_old_workflow(SPEAKERS))
    set_widget(page, SPEECH, "text", TEXT)
    set_widget(page, SPEECH, "seed", page.seed + 11)
    sizes = page.page.evaluate(WIDGETS)
    kind, data = page.run()
    assert kind == "execution_success", data
    wait_for_the_end(page)
    assert "kettle" in page.page.evaluate(LABELS)
    samples, _, runs = heard(page)
    assert runs[0] == 0, "nothing was heard before the run had ended"
    assert np.array_equal(samples, saved(page.server, 2)), "what was heard is not what was saved"
    page.page.wait_for_function(ALL_ENDED)
    assert page.page.locator(".morph-clip").count() == 2, "the list is there"
    now = page.page.evaluate(WIDGETS)
    assert now == [[*names, "speech_clips", "shown_text"] for names in sizes], "the player's widget is gone"
    assert page.problems() == []


@pytest.mark.parametrize("page", CLASSIC, indirect=True)
def test_a_script_is_heard_as_its_track_with_the_characters_names(page: ComfyPage) -> None:
    page.load(read_workflow(DIALOGUE))
    set_widget(page, SCRIPT, "script", "CLARA: The rain has stopped.\n[pause 0.5]\nBEN: Then let us walk.")
    set_widget(page, SCRIPT, "seed", page.seed + 12)
    page.page.evaluate(NAMES)
    kind, data = page.run()
    assert kind == "execution_success", data
    wait_for_the_end(page)
    names = page.page.evaluate("() => window.__names")
    assert names == ["CLARA", "BEN"]
    told = {one["line"]: "".join(word for word, _, _ in one["words"]) for one in page.page.evaluate(TOLD)}
    assert told == {0: "The rain has stopped.", 1: "Then let us walk."}
    samples, _, runs = heard(page)
    assert runs[0] == 0 and np.abs(samples).max() > 0.05
    tracks = [soundfile.read(path)[0] for path in page.server.base_dir.glob("output/**/*.flac")]
    assert any(np.array_equal(samples, track) for track in tracks), "the track is not what was heard"
    assert page.problems() == []


def speak_unheard(page: ComfyPage, seed: int) -> None:
    """Run a long line in a page that may not sound; return when its player says so."""
    page.page.evaluate("() => { window.__state = 'suspended' }")
    page.load(read_old_workflow(SPEAKERS))
    set_widget(page, SPEECH, "seed", seed)
    set_widget(page, SPEECH, "text", f"{TEXT} " * 3)
    page.page.evaluate("() => { window.app.queuePrompt(0) }")
    page.page.locator(".morph-live span", has_text="click to play").first.wait_for(state="attached")


@pytest.mark.slow
@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_a_page_that_may_not_sound_plays_from_the_beginning_after_a_click(page: ComfyPage) -> None:
    speak_unheard(page, page.seed + 14)
    page.page.wait_for_function("() => window.__heard.length > 2")
    page.page.evaluate("() => { window.__state = 'running' }")
    before = page.page.evaluate(CLICK_AND_COUNT)
    chunks = page.page.evaluate(HEARD)
    first, again = chunks[:before], chunks[before : 2 * before]
    assert [samples for _, samples, _ in again] == [samples for _, samples, _ in first]
    page.page.wait_for_function("() => window.__ended.length === 1")


@pytest.mark.slow
@pytest.mark.parametrize("page", CLASSIC, indirect=True)
def test_a_page_that_is_loaded_again_during_the_run_goes_on_with_it(page: ComfyPage) -> None:
    from tests.comfy.page import READY, WATCH

    page.keeps_scripts = True
    page.page.add_init_script(f"({STUB})()")
    page.page.add_init_script("window.__ended = []")
    page.load(read_old_workflow(SPEAKERS))
    set_widget(page, SPEECH, "seed", page.seed + 21)
    set_widget(page, SPEECH, "text", f"{TEXT} " * 60)  # longer than a page loads on however busy a machine
    page.page.evaluate("() => { window.app.queuePrompt(0) }")
    page.page.wait_for_function("() => window.__heard.length > 3")
    before = page.page.evaluate(HEARD)
    page.page.reload()
    page.page.wait_for_function(READY)
    page.page.evaluate(WATCH)
    page.page.wait_for_function("(count) => window.__heard.length > count", arg=len(before))
    after = page.page.evaluate(HEARD)
    joined = [np.concatenate([np.array(chunk) for _, chunk, _ in part]) for part in (before, after)]
    length = min(map(len, joined))
    assert np.array_equal(joined[0][:length], joined[1][:length]), "not from the beginning of its speech"
    page.page.wait_for_function("() => document.querySelector('.morph-live')")
    page.server.interrupt()
    page.page.wait_for_function("() => window.__ended.length === 1")


REFUSED = "this page was opened as studio.localhost, which is not a listed name"


@pytest.mark.parametrize("page", NODES_2, indirect=True)
@pytest.mark.slow
def test_a_page_under_a_name_that_is_not_listed_says_once_what_to_do(page, screenshots) -> None:
    from tests.comfy.page import ComfyPage

    server, first, second = page.server, page.seed + 22, page.seed + 23
    page = ComfyPage(page.page.context.new_page(), server.url.replace("127.0.0.1", "studio.localhost"))
    for seed in (first, second):
        page.load(read_old_workflow(SPEAKERS))
        set_widget(page, SPEECH, "seed", seed)
        set_widget(page, SPEECH, "text", "The rain has stopped.")
        kind, data = page.run()
        assert kind == "execution_success", data
        if seed == first:
            said = page.page.locator(".morph-live-refused span").all_text_contents()
            assert len(said) == 1 and REFUSED in said[0] and "MORPH_TTS_HOSTS=studio.localhost" in said[0]
            page.page.evaluate(SHOW_ALL)
            page.screenshot(screenshots / "a page that is not listed.png")
            page.page.locator(".morph-live-refused button").dispatch_event("click")
    assert page.page.locator(".morph-live").count() == 0, "it is said once"
    assert page.page.locator(".morph-clip").count() == 2, "what was spoken can be played"
    asked = [refused for refused in page.refused if "/morph/speech/listen" in refused]
    assert len(asked) == 1 and asked[0].startswith("403 "), "it asks once"


@pytest.mark.parametrize("page", CLASSIC, indirect=True)
def test_cancel_silences_the_page(page: ComfyPage) -> None:
    page.load(read_old_workflow(SPEAKERS))
    set_widget(page, SPEECH, "seed", page.seed + 15)
    set_widget(page, SPEECH, "text", f"{TEXT} " * 12)
    page.page.evaluate("() => { window.app.queuePrompt(0) }")
    page.page.wait_for_function("() => window.__heard.length > 3")
    page.server.interrupt()
    page.page.wait_for_function("() => window.__ended.length === 1")
    assert page.page.evaluate("() => window.__ended[0][0]") == "execution_interrupted"
    page.page.wait_for_function("() => window.__stopped > 0")
    page.page.locator(".morph-live span", has_text="cancelled").first.wait_for(state="attached")
    count = len(page.page.evaluate(HEARD))
    page.page.wait_for_timeout(300)
    assert len(page.page.evaluate(HEARD)) == count


INTO_SUBGRAPH = """(kind) => {
  const {graph} = window.app
  return String(graph.convertToSubgraph(new Set([graph.nodes.find((node) => node.type === kind)])).node.id)
}"""
NODES = """() => {
  window.__nodes = []
  window.app.api.addEventListener('morph.speech', ({detail}) => window.__nodes.push(detail.node))
}"""


@pytest.mark.slow
@pytest.mark.parametrize("page", NODES_2, indirect=True)
def test_a_node_in_a_closed_subgraph_is_shown_in_a_bar_and_other_pages_hear_nothing(page, browser) -> None:
    with browser.open(page.server) as other:
        other.page.evaluate(STUB)
        page.load(read_old_workflow(SPEAKERS))
        set_widget(page, SPEECH, "seed", page.seed + 16)
        subgraph = page.page.evaluate(INTO_SUBGRAPH, SPEECH)
        page.page.evaluate(NODES)
        kind, data = page.run()
        assert kind == "execution_success", data
        wait_for_the_end(page)
        nodes = page.page.evaluate("() => window.__nodes")
        assert len(nodes) == 2 and [node.split(":")[0] for node in nodes].count(subgraph) == 1
        assert page.page.evaluate("() => window.__bar") == 1
        page.page.wait_for_function(ALL_ENDED)
        assert other.page.evaluate(HEARD) == []


@pytest.mark.slow
@pytest.mark.parametrize("page", CLASSIC, indirect=True)
def test_a_run_that_is_cached_plays_nothing_and_can_be_heard_again(page: ComfyPage) -> None:
    page.load(read_old_workflow(SPEAKERS))
    set_widget(page, SPEECH, "seed", page.seed + 17)
    page.run()
    wait_for_the_end(page)
    first = page.page.evaluate(HEARD)
    page.run()
    assert len(page.page.evaluate(HEARD)) == len(first), "a cached run was played"
    page.page.wait_for_function(ALL_ENDED)
    assert page.page.locator(".morph-clip").count() == 2


# The routes


@pytest.fixture(scope="module")
def speech_routes(server: ComfyServer) -> str:
    return f"{server.url}/morph/speech"


def ask(url: str, body: bytes | None = None, **headers: str) -> int:
    """Return the status of a request with these headers (``sec_fetch_site`` for ``Sec-Fetch-Site``)."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data=body, headers=named)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


OTHERS = {
    "no origin at all": ({"origin": "null"}, 403),
    "another site's audio element": ({"sec_fetch_site": "cross-site"}, 403),
    "a name that resolves to this computer": (
        {"host": "evil.example:8188", "origin": "http://evil.example:8188"},
        403,
    ),
    "another port": ({"origin": "http://127.0.0.1:1"}, 403),
    "the page itself": ({"sec_fetch_site": "same-origin"}, 200),
}


@pytest.mark.parametrize("who", OTHERS)
def test_other_sites_get_nothing(speech_routes: str, who: str) -> None:
    headers, status = OTHERS[who]
    assert ask(f"{speech_routes}?client=anyone", **headers) == status
    body = json.dumps({"client": "someone", "wanted": True}).encode()
    assert ask(f"{speech_routes}/listen", body, content_type="application/json", **headers) == status


def test_a_guessed_stream_is_not_found(speech_routes: str) -> None:
    assert ask(f"{speech_routes}/{'0' * 32}") == 404

"""The server's page in headless Chromium: it speaks, plays, saves, takes voices, and tells what went wrong."""

import io
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import soundfile
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright
from qwen3_tts_morph.morph.batch import scheduler
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.serve.api.options import Access, Limits, ServerOptions
from qwen3_tts_morph.serve.routes.app import App

from tests.comfy.page import CHROMIUM_ARGS, find_chromium
from tests.patience import PATIENCE, wait_until
from tests.serve.conftest import Client, listening, ready_speaker, row_is_free

KEY = "correct-horse"
MOST = 3000  # characters
SEED = str(2**64 - 1)  # JavaScript's numbers cannot hold it
SET_SEED = "(seed) => { const field = document.getElementById('seed'); if (field) field.value = seed }"
BEGINNINGS = {"wav": b"RIFF", "flac": b"fLaC", "opus": b"OggS", "mp3": b"\xff\xf3", "aac": b"\xff\xf1"}
NO_DEVICE = """
    AudioContext.prototype.resume = () => new Promise(() => {})
    Object.defineProperty(AudioContext.prototype, "state", { get: () => "suspended" })
"""
FAKE_MICROPHONE = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]  # it beeps
TOO_WIDE = "() => document.documentElement.scrollWidth > innerWidth"
expect.set_options(timeout=1000 * PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip("not run: no Chromium is installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=path, args=[*CHROMIUM_ARGS, *FAKE_MICROPHONE], timeout=1000 * PATIENCE
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def base(load, long_words, recording, tmp_path_factory) -> Iterator[Client]:
    """A server whose checkpoint can clone, with one row and two voices."""
    folder, model = tmp_path_factory.mktemp("voices"), load("tiny", "base")
    for name, words in (("Ann", None), ("Ben", "What it says.")):
        options = CloneOptions("icl" if words else "x_vector", words, name=name)
        save_voice(clone_voice(model, recording, 24000, options), folder / f"{name}.safetensors")
    options = ServerOptions(voices=folder, rows=1, limits=Limits(characters=MOST))
    speaker = ready_speaker(model, options)
    yield Client(App(speaker, options), speaker)
    speaker.close()


@pytest.fixture(scope="module")
def url(base: Client) -> Iterator[str]:
    with listening(base.app) as address:
        yield address


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """``open_page(address)``: the page. Whatever its console says fails the test, but answers that a test asks for.

    Its seed is SEED: with others this model may run to its cap.
    """
    pages, said = [], []

    def make(address: str, script: str = "") -> Page:
        page = browser.new_page()
        pages.append(page)
        page.set_default_timeout(1000 * PATIENCE)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda one: said.append(one.text))
        if script:
            page.add_init_script(script)
        page.goto(address)
        page.evaluate(SET_SEED, SEED)
        return page

    yield make
    for page in pages:
        page.close()
    assert [one for one in said if "Failed to load resource" not in one or "404" in one] == []


@pytest.fixture
def page(open_page, url) -> Page:
    opened = open_page(url)
    expect(opened.locator("#state")).to_have_text("Connected")
    return opened


def speak(page: Page, text: str = "Hello there.") -> str:
    """Speak to the end; return the JSON that was sent."""
    page.fill("#text", text)
    with page.expect_request("**/v1/audio/speech") as asked:
        page.click("#speak")
    expect(page.locator("#message")).to_contain_text("Spoken with seed")
    return str(asked.value.post_data)


def save(page: Page, kind: str) -> bytes:
    page.select_option("#format", kind)
    with page.expect_download() as download:
        page.click("#download")
    assert download.value.suggested_filename == f"speech-{SEED}.{kind}"
    return Path(download.value.path()).read_bytes()


def test_it_speaks_and_every_format_can_be_saved(page: Page) -> None:
    page.locator("#groups").fill("15")
    expect(page.locator("#groups")).to_have_attribute("aria-valuetext", "15 of 15: exact")
    sent = speak(page)
    assert f'"seed": {SEED}' in sent and json.loads(sent)["seq_groups"] == 15 and "speed" not in sent
    expect(page.locator("#message")).to_contain_text(f"Spoken with seed {SEED}.")
    expect(page.locator("#stop")).to_be_disabled()
    saved = {kind: save(page, kind) for kind in (*BEGINNINGS, "pcm")}
    for kind, beginning in BEGINNINGS.items():
        assert saved[kind].startswith(beginning), kind
    assert saved["wav"][44:] == saved["pcm"] and len(saved["pcm"]) > 2000
    assert soundfile.info(io.BytesIO(saved["flac"])).frames == len(saved["pcm"]) // 2
    page.locator("summary", has_text="Live figures").click()
    for shown in ("#first", "#rtf", "#sound", "#late"):
        expect(page.locator(shown)).not_to_have_text("–")
    expect(page.locator("#rows")).to_have_text("0 of 1")


def test_a_take_is_paused_moved_and_heard_again(page: Page) -> None:
    speak(page, "One two three. " * 4)
    page.click("#replay")
    page.get_by_role("button", name="Pause", exact=True).click()
    seek = page.get_by_label("Position")
    seek.fill("0.5")
    expect(seek).to_have_attribute("aria-valuetext", re.compile(r"^0\.5 of \d"))
    seek.press("ArrowLeft")
    expect(seek).to_have_value("0")
    page.get_by_role("button", name="Play", exact=True).click()
    page.wait_for_function("() => Number(document.getElementById('seek').value) > 0.1")
    page.get_by_label("Volume").fill("20")
    speak(page, "Another one.")
    expect(page.locator("#takes li")).to_have_count(2)
    page.get_by_role("button", name="Play: One two three.").click()
    expect(page.locator("#takes .chosen")).to_contain_text("One two three.")
    page.fill("#seed", "")
    page.get_by_role("button", name="Reuse settings: One two three.").click()
    expect(page.get_by_role("textbox", name="Text", exact=True)).to_have_value("One two three. " * 4)
    expect(page.locator("#seed")).to_have_value(SEED)


def test_words_light_up_as_they_are_heard(open_page, telling: Client) -> None:
    text = "Good morning, 😀 all of you. [pause 0.2] Then $5"
    with listening(telling.app) as address:
        page = open_page(address)
        assert page.locator("#heard").is_hidden()
        speak(page, text)
        heard = page.locator("#heard")
        assert heard.inner_text() == text
        words = ["Good", "morning, 😀", "all", "of", "you.", "Then", "$5"]
        assert page.locator("#heard span").all_inner_texts() == words
        page.evaluate("document.getElementById('play').classList.contains('sounds') && play.click()")
        length = float(page.locator("#seek").get_attribute("max"))
        page.locator("#seek").fill(str(length))
        expect(page.locator("#heard .lit")).to_have_count(len(words))
        page.locator("#replay").click()
        page.locator("#play").click()
        page.locator("#seek").fill("0")
        assert page.locator("#heard .lit").count() < len(words)
        results = Axe().run(page)
        assert results.violations_count == 0, results.generate_report()


def test_without_a_sound_device_it_speaks_and_says_so(open_page, url) -> None:
    """As Firefox does there: the context stays suspended, and its promise is never kept."""
    page = open_page(url, NO_DEVICE)
    expect(page.locator("#state")).to_have_text("Connected")
    speak(page)
    expect(page.locator("#message")).to_contain_text("This browser plays no audio")


def test_who_waits_is_told_and_stop_frees_the_row(open_page, page: Page, url, base: Client, monkeypatch) -> None:
    # No row changes hands within a piece, as where no player has enough to play.
    monkeypatch.setattr(scheduler, "AHEAD_S", math.inf)
    monkeypatch.setattr(scheduler, "LESS_S", math.inf)
    page.fill("#text", "word " * 500)
    page.click("#speak")
    expect(page.locator("#message")).to_have_text("Speaking")
    second, third = open_page(url), open_page(url)
    for one in (second, third):
        expect(one.locator("#state")).to_have_text("Connected")
        one.click("#speak")
        expect(one.locator("#message")).to_contain_text("Queued")
    expect(second.locator("#message")).to_have_text("Queued: you are next")
    expect(third.locator("#message")).to_have_text("Queued: 1 before you")
    second.click("#stop")
    expect(second.locator("#message")).to_have_text("Stopped.")
    page.click("#stop")
    expect(page.locator("#message")).to_have_text("Stopped.")
    expect(page.locator("#takes li")).to_contain_text("stopped")
    expect(third.locator("#message")).to_contain_text("Spoken with seed")
    wait_until(lambda: row_is_free(base.speaker))


def test_an_error_is_at_its_field(page: Page) -> None:
    text = page.get_by_role("textbox", name="Text", exact=True)
    expect(page.locator("#count")).to_have_text("46 of 3,000 characters")
    for wrong, words in (("...", "has no letter"), ("x" * (MOST + 5), "3,000 are allowed")):
        text.fill(wrong)
        page.click("#speak")
        expect(page.locator("#text-error")).to_contain_text(words)
        expect(text).to_be_focused()
        expect(text).to_have_attribute("aria-invalid", "true")
        expect(page.locator("#stop")).to_be_disabled()
    expect(page.locator("#count")).to_have_text("3,005 of 3,000 characters: 5 too many")
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"\xff\xfe\x00"})
    expect(page.locator("#text-error")).to_contain_text("not UTF-8 text")
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": bytes(4 * MOST + 1)})
    expect(page.locator("#text-error")).to_contain_text("at most 12,000")
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": "Grüße.".encode()})
    expect(text).to_have_value("Grüße.")
    page.fill("#seed", "1.5")
    page.click("#speak")
    expect(page.locator("#seed")).to_be_focused()
    expect(page.locator("#text-error")).to_be_hidden()


def test_voices_are_found_heard_added_and_deleted(page: Page, base: Client, recording, tmp_path) -> None:
    speak(page)
    expect(page.locator("#voices li")).to_have_count(2)
    page.get_by_label("Search voices").fill("be")
    expect(page.locator("#voices li")).to_have_count(1)
    expect(page.locator("#found")).to_have_text("1 of 2 voices")
    with page.expect_request("**/v1/audio/speech"):
        page.get_by_role("button", name="Play Ben").click()
    expect(page.locator("#message")).to_have_text("")  # it was of what was spoken before
    expect(page.locator("#voice-message")).to_have_text("")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
    page.get_by_role("button", name="Play Ben").click()
    page.get_by_label("Search voices").fill("")
    soundfile.write(tmp_path / "Cay.wav", recording, 24000)
    page.get_by_text("Add a voice", exact=True).click()
    page.set_input_files("#voice-file", tmp_path / "Cay.wav")
    expect(page.get_by_label("Name")).to_have_value("Cay")
    page.get_by_label("What the recording says").fill("What it says.")
    page.get_by_label("best 3 to 12 seconds").check()
    page.click("#add-voice")
    expect(page.locator("#consent-error")).to_contain_text("has agreed")
    assert asked == [], "a preview is kept, and without consent nothing is sent"
    page.get_by_label("has agreed").check()
    page.fill("#voice-name", "Alloy")
    page.click("#add-voice")
    expect(page.locator("#voice-name-error")).to_contain_text("choose another name")
    page.fill("#voice-name", "Cay")
    page.click("#add-voice")
    expect(page.locator("#voice-message")).to_contain_text("Cay was added. the best part: ")
    expect(page.get_by_role("radio", name="Cay")).to_be_checked()
    assert base.speaker.voices.find("Cay").kind == "icl" and '"voice": "Cay"' in speak(page)
    added = clone_voice(base.speaker.model, recording, 24000)
    save_voice(added, tmp_path / "Dan.safetensors")
    base.speaker.voices.add("Eve", (tmp_path / "Dan.safetensors").read_bytes())
    expect(page.get_by_role("radio", name="Eve")).to_be_visible()
    page.set_input_files("#voice-file", tmp_path / "Dan.safetensors")
    page.get_by_label("has agreed").check()
    page.click("#add-voice")
    expect(page.get_by_role("radio", name="Dan")).to_be_checked()
    page.on("dialog", lambda dialog: dialog.accept())
    for name in ("Dan", "Cay", "Eve"):  # also what another has added
        page.get_by_role("button", name=f"Delete {name}").click()
        expect(page.get_by_role("radio", name=name)).to_have_count(0)


def test_a_voice_is_recorded_and_a_busy_server_waited_for(page: Page, base: Client) -> None:
    page.get_by_text("Add a voice", exact=True).click()
    page.get_by_role("button", name="Record with the microphone").click()
    expect(page.get_by_label("Microphone level")).to_be_visible()
    expect(page.locator("#recorded")).to_have_text(re.compile("^([3-9]|[0-9]{2}) s$"))  # a busy page skips some
    page.get_by_role("button", name="Stop recording").click()
    expect(page.locator("#recorded")).to_contain_text("are recorded")
    page.get_by_role("button", name="I read the text above").click()
    page.fill("#voice-name", "Me")
    page.get_by_label("has agreed").check()
    held: list[Route] = []
    page.route("**/clone?*", lambda route: held.append(route), times=1)
    with page.expect_request("**/clone?*"):
        page.click("#add-voice")
    expect(page.locator("#voice-message")).to_contain_text("Creating the voice")  # at once
    expect(page.locator("#add-voice")).to_be_disabled()
    held[0].fulfill(status=503, json={"error": {"message": "the server speaks all the time"}})
    expect(page.locator("#voice-message")).to_contain_text("Me was added")
    voice = base.speaker.voices.find("Me")
    assert voice.kind == "icl" and voice.transcript.startswith("The sun had already set")
    base.speaker.voices.remove("Me")


def test_the_request_is_shown_as_code(page: Page) -> None:
    page.fill("#text", 'It\'s "so".')
    page.locator("#speed").fill("0.6")
    page.get_by_text("This request as code").click()
    code = page.get_by_role("region", name="The request as code")
    expect(code).to_contain_text(r"It'\''s \"so\"")
    expect(code).to_contain_text(
        f'"voice": "Ann", "speed": 1.52, "response_format": "mp3", "stream": false, "seed": {SEED}'
    )
    page.select_option("#language-of-code", "python")
    compile(code.inner_text(), "code", "exec")
    expect(code).to_contain_text(f'"seed": {SEED}')


def test_a_checkpoint_that_designs_voices_gets_a_description(open_page, url) -> None:
    def design(route: Route) -> None:
        found = {**route.fetch().json(), "kind": "voice_design", "follows_instructions": True}
        route.fulfill(json=found)

    page = open_page("about:blank")
    page.route("**/v1/status", design)
    page.goto(url)
    described = page.get_by_label("Description of the voice")
    described.fill("An old sailor.")
    page.fill("#seed", SEED)
    expect(page.locator("#voice-card")).to_be_hidden()
    with page.expect_request("**/v1/audio/speech") as asked:
        page.click("#speak")
    assert asked.value.post_data_json["instructions"] == "An old sailor."


def test_the_page_asks_for_the_key_first(open_page, base: Client) -> None:
    with listening(App(base.speaker, ServerOptions(Access(key=KEY)))) as address:
        page = open_page(address)
        asked = []
        page.on("request", lambda request: asked.append(request.url) if "/v1/" in request.url else None)
        expect(page.get_by_role("heading", name="This server needs a key")).to_be_visible()
        expect(page.get_by_role("textbox", name="Key")).to_be_focused()
        expect(page.locator("#speak")).to_be_hidden()
        page.fill("#key", "wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#key-error")).to_contain_text("not the server's key")
        page.wait_for_timeout(1500)
        assert len(asked) == 1, "it does not ask again and again"
        page.fill("#key", KEY)
        page.keyboard.press("Enter")
        expect(page.locator("#state")).to_have_text("Connected")
        speak(page)
        page.get_by_text("This request as code").click()
        expect(page.locator("#code")).to_contain_text("Bearer $MORPH_TTS_API_KEY")
        assert KEY not in page.locator("#code").inner_text()


def test_a_server_that_is_gone_is_told_and_found_again(page: Page) -> None:
    def gone(route: Route) -> None:
        route.abort("connectionrefused")

    page.route("**/*", gone)
    expect(page.locator("#state")).to_have_text("The server does not answer: trying again")
    page.get_by_text("Live figures").click()
    expect(page.locator("#rows")).to_have_text("–")
    page.click("#speak")
    expect(page.get_by_role("alert")).to_contain_text("your text is still here")
    page.unroute("**/*", gone)
    expect(page.locator("#state")).to_have_text("Connected")
    expect(page.get_by_role("alert")).to_be_hidden()
    speak(page)


@contextmanager
def scheme(page: Page, name: str, width: int) -> Iterator[None]:
    page.emulate_media(color_scheme=name)
    page.set_viewport_size({"width": width, "height": 900})
    yield
    assert not page.evaluate(TOO_WIDE)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_everybody_can_use_it(page: Page, name: str) -> None:
    """By axe-core's rules, with all that can be folded unfolded, after a take and with an error; at two widths."""
    speak(page)
    for summary in page.locator("summary").all():
        summary.click()
    page.fill("#seed", "x")
    page.click("#speak")
    for width in (390, 1920):
        with scheme(page, name, width):
            tops = [page.locator(card).bounding_box()["y"] for card in ("#form", "#voice-card", "#play")]
            assert width > 390 or tops == sorted(tops), "on a phone the voices are above the sound"
            results = Axe().run(page)
            assert results.violations_count == 0, results.generate_report()

"""The server's page in headless Chromium: it speaks, shows how fast, stops, and asks for a key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from qwen3_tts_morph.serve.app import create_app
from qwen3_tts_morph.serve.options import Access, ServerOptions

from tests.comfy.page import CHROMIUM_ARGS, find_chromium
from tests.patience import PATIENCE, wait_until
from tests.serve.conftest import Client, listening, row_is_free

KEY = "correct-horse"
expect.set_options(timeout=1000 * PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip("not run: no Chromium is installed")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=path, args=CHROMIUM_ARGS, timeout=1000 * PATIENCE
        )
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page; what it reports as an error fails the test, but for answers that tests ask for."""
    opened, problems = browser.new_page(), []
    opened.set_default_timeout(1000 * PATIENCE)
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    yield opened
    opened.close()
    assert [one for one in problems if "Failed to load resource" not in one] == []


@pytest.fixture(scope="module")
def url(client: Client) -> Iterator[str]:
    with listening(client.app) as address:
        yield address


def test_the_page_speaks_and_shows_how_fast(page: Page, url: str, client: Client) -> None:
    page.goto(url)
    expect(page.locator("#model")).to_have_text(client.speaker.model.name)
    assert page.locator("#voice option").all_inner_texts() == client.speaker.model.speakers
    page.fill("#text", "Hello there.")
    page.fill("#seed", "7")
    page.locator("#groups").fill("15")
    expect(page.locator("#groups-shown")).to_have_text("15")
    with page.expect_request("**/v1/audio/speech") as asked:
        page.click("#speak")
    sent = asked.value.post_data_json
    assert (sent["seed"], sent["seq_groups"], sent["response_format"]) == (7, 15, "pcm")
    expect(page.locator("#message")).to_have_text("spoken with seed 7")
    for shown in ("#first", "#rtf", "#sound", "#late"):
        expect(page.locator(shown)).not_to_have_text("–")
    expect(page.locator("#rows")).to_have_text("0 of 8")


def test_without_a_sound_device_it_speaks_and_says_so(page: Page, url: str, client: Client) -> None:
    """As Firefox does there: the context stays suspended, and its promise is never kept."""
    page.add_init_script("""
        AudioContext.prototype.resume = () => new Promise(() => {})
        Object.defineProperty(AudioContext.prototype, "state", { get: () => "suspended" })
    """)
    page.goto(url)
    expect(page.locator("#model")).to_have_text(client.speaker.model.name)
    page.fill("#text", "Hello there.")
    page.fill("#seed", "7")
    page.click("#speak")
    expect(page.locator("#message")).to_contain_text("spoken with seed 7, and this browser plays no sound")
    expect(page.locator("#sound")).not_to_have_text("–")


def test_stop_frees_the_row(page: Page, url: str, client: Client) -> None:
    page.goto(url)
    expect(page.locator("#model")).to_have_text(client.speaker.model.name)
    page.fill("#text", "word " * 2000)
    page.click("#speak")
    expect(page.locator("#sound")).not_to_have_text("–")
    page.click("#stop")
    expect(page.locator("#message")).to_have_text("stopped")
    wait_until(lambda: row_is_free(client.speaker))


def test_an_error_is_shown_in_the_server_s_words(page: Page, url: str, client: Client) -> None:
    page.goto(url)
    expect(page.locator("#model")).to_have_text(client.speaker.model.name)
    page.fill("#text", "...")
    page.click("#speak")
    expect(page.locator("#message.error")).to_contain_text("no letter")


def test_the_page_asks_for_the_key(page: Page, client: Client) -> None:
    with listening(create_app(client.speaker, ServerOptions(Access(key=KEY)))) as address:
        page.goto(address)
        expect(page.locator("#message.error")).to_contain_text("key is missing")
        page.fill("#key", KEY)
        page.locator("#key").blur()
        expect(page.locator("#model")).to_have_text(client.speaker.model.name)
        page.fill("#text", "Hello there.")
        page.click("#speak")
        expect(page.locator("#message")).to_contain_text("spoken with seed")

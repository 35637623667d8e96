"""Live speech without ComfyUI: the store, its readers over HTTP, and the checks of requests."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from qwen3_tts_morph.morph.words.timing import WordTime
from qwen3_tts_morph.serve.api.options import why_refused

from tests.nodes.package import load
from tests.patience import PATIENCE

live, routes = load("page.live"), load("routes")
PAGE = "the page"


class Server:
    """What the store uses of ComfyUI's server."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop, self.client_id, self.last_prompt_id = loop, PAGE, "run 1"
        self.sent: list[tuple[str, Any, str]] = []

    def send_sync(self, event: str, data: Any, client: str) -> None:
        self.sent.append((event, data, client))


def serve(scenario: Callable[[Any, Any, Server], Awaitable[None]]) -> None:
    """Run ``scenario(store, http server, ComfyUI's server)`` with the routes."""

    async def run() -> None:
        comfy = Server(asyncio.get_running_loop())
        store = live.SpeechStore(comfy)
        app = web.Application()
        for (method, path), handler in routes.speech_routes(store).items():
            app.router.add_route(method, path, routes.guard(handler))
        async with TestServer(app) as http:
            await scenario(store, http, comfy)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def as_bytes(samples: np.ndarray) -> bytes:
    return (samples * 32768).round().clip(-32768, 32767).astype("<i2").tobytes()


def sine(samples: int) -> np.ndarray:
    return np.sin(np.arange(samples) / 10).astype(np.float32)


def test_nothing_is_announced_to_a_page_that_does_not_listen() -> None:
    async def scenario(store, http, comfy) -> None:
        for client, node in ((PAGE, "5"), (None, "5"), (PAGE, None)):
            comfy.client_id = client
            store.listen(PAGE, client is None or node is None)
            with store.announce(node, 24000) as speech:
                speech.begin("ANNA", "Hi.")
                speech.play(sine(10))
                speech.show_words(0, (WordTime("Hi", 0.0, 0.2, 0, 2),))
                assert not speech.has_listener and not speech.samples
        assert comfy.sent == [] and store.of_client(PAGE) == []

    serve(scenario)


BODIES = {
    "none": b"",
    "cut": b"{",
    "deep": b"[" * 60_000,
    "list": b"[]",
    "number": b'{"client": 5, "wanted": true}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_request_that_says_nothing_is_refused(body: bytes) -> None:
    async def scenario(store, http, comfy) -> None:
        headers = {"Content-Type": "application/json"}
        async with (
            ClientSession() as session,
            session.post(http.make_url(f"{routes.ROOT}/listen"), data=body, headers=headers) as answer,
        ):
            assert answer.status == 400 and "error" in await answer.json()

    serve(scenario)


def test_a_reader_gets_all_samples_from_where_it_asks_while_they_are_made() -> None:
    async def scenario(store, http, comfy) -> None:
        store.listen(PAGE, True)
        wave = sine(9600)
        with store.announce("12:5", 24000) as speech:
            async with ClientSession() as session:
                speech.play(wave[:4800])
                reading = asyncio.create_task(fetch(session, http, speech.id, 100))
                await asyncio.sleep(0.05)
                assert not reading.done()
                speech.play(wave[4800:])
                speech.end()
                assert await reading == as_bytes(wave[100:])
        [(event, said, client)] = comfy.sent
        assert (event, client, said["node"], said["prompt_id"]) == ("morph.speech", PAGE, "12:5", "run 1")
        assert {**said, "ended": True} == store.of_client(PAGE)[0].describe() and not said["ended"]
        assert len(said["stream"]) == 32

    serve(scenario)


async def fetch(session: ClientSession, http: TestServer, stream: str, start: int = 0) -> bytes:
    async with session.get(http.make_url(f"{routes.ROOT}/{stream}"), params={"from": start}) as answer:
        assert answer.status == 200 and answer.headers["Cache-Control"] == "no-store"
        return await answer.read()


def test_the_words_of_a_line_are_told_to_the_page_that_hears_it() -> None:
    async def scenario(store, http, comfy) -> None:
        store.listen(PAGE, True)
        with store.announce("5", 24000) as speech:
            speech.show_words(1, (WordTime("Hi,", 0.0, 0.2, 0, 3), WordTime("you.", 0.25, 0.5, 4, 8)))
            speech.show_words(2, ())
        told = {"stream": speech.id, "line": 1, "words": (("Hi,", 0.0, 0.2), (" you.", 0.25, 0.5))}
        assert comfy.sent[1:] == [("morph.speech.words", told, PAGE)]

    serve(scenario)


def test_two_hundred_listeners_who_leave_at_random_leave_nothing_behind() -> None:
    async def scenario(store, http, comfy) -> None:
        store.listen(PAGE, True)
        chance = random.Random(0)
        async with ClientSession() as session:
            with store.announce("5", 24000) as speech:
                before = len(asyncio.all_tasks())
                leavers = [
                    asyncio.create_task(leave(session, http, speech.id, chance.random() / 5)) for _ in range(200)
                ]
                for part in np.split(sine(48000), 50):
                    speech.play(part)
                    await asyncio.sleep(0.005)
                await asyncio.gather(*leavers)
                assert await fetch_some(session, http, speech.id)
                # A reader that waits notices that its client has gone, before the stream has ended.
                await wait_until(lambda: len(asyncio.all_tasks()) <= before)

    serve(scenario)


async def wait_until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(0.01)


async def leave(session: ClientSession, http: TestServer, stream: str, after: float) -> None:
    async with session.get(http.make_url(f"{routes.ROOT}/{stream}")) as answer:
        await asyncio.sleep(after)
        answer.close()


async def fetch_some(session: ClientSession, http: TestServer, stream: str) -> bytes:
    async with session.get(http.make_url(f"{routes.ROOT}/{stream}")) as answer:
        return await answer.content.read(1000)


def test_a_stream_is_forgotten_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "KEPT_S", 0.0)

    async def scenario(store, http, comfy) -> None:
        store.listen(PAGE, True)
        with store.announce("5", 24000) as speech:
            pass
        assert store.find(speech.id) is speech, "the loop has had no turn yet"
        await wait_until(lambda: store.find(speech.id) is None)

    serve(scenario)


def test_a_very_long_stream_drops_what_was_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_BYTES", 200)

    async def scenario(store, http, comfy) -> None:
        speech = live.PlayedSpeech(comfy, "5", "run", PAGE, 24000)
        wave = sine(150)
        speech.play(wave)
        speech.end()
        assert speech.samples == 150
        assert speech.read(0, 1000) == (as_bytes(wave[50:]), 300, True)
        assert speech.read(260, 10) == (as_bytes(wave[130:135]), 270, False)

    serve(scenario)


HOST = "127.0.0.1:8188"


@pytest.mark.parametrize(
    ("cors", "origin", "allowed"),
    [
        ("*", "http://a.example", True),
        ("http://a.example", "http://a.example", True),
        ("http://b.example", "http://a.example", False),
    ],
)
def test_an_origin_that_the_user_allowed_may_ask(cors: str, origin: str, allowed: bool) -> None:
    headers = {"Host": HOST, "Origin": origin, "Sec-Fetch-Site": "cross-site"}
    assert (why_refused(headers, (), cors) is None) == allowed

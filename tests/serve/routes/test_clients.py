"""Clients of a real server on loopback: httpx, the openai package, WebSockets; those that leave, those that wait."""

import json
import logging
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from qwen3_tts_morph.serve.api.options import Limits, ServerOptions
from qwen3_tts_morph.serve.process.server import is_worth_a_line
from qwen3_tts_morph.serve.routes.app import App
from qwen3_tts_morph.serve.routes.speaker import Speaker
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.patience import PATIENCE, wait_until
from tests.serve.conftest import Client, asked, listening, row_is_free, same_sound

LONG = {**asked("word " * 2000, response_format="pcm"), "sampling": {"max_seconds": 100}}
PATH = "/v1/audio/speech"
KEY = "correct-horse"
# What OpenAI's clients do not know: without a seed, one in some hundred takes of a random model is cut off.
ENDS = {name: value for name, value in asked().items() if name in ("seed", "sampling")}


@pytest.fixture(scope="module")
def url(client: Client) -> Iterator[str]:
    with listening(client.app) as address:
        yield address


@pytest.fixture
def small(make_speaker) -> Iterator[tuple[Speaker, str]]:
    """A server with one row, where one more may wait."""
    options = ServerOptions(rows=1, waiting=1, limits=Limits(idle_seconds=2, pause_seconds=1))
    speaker = make_speaker(options)
    with listening(App(speaker, options)) as address:
        yield speaker, address


# OpenAI's client


@pytest.fixture
def api(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="none", base_url=f"{url}/v1", timeout=PATIENCE, max_retries=0) as made:
        yield made


def test_openai_s_client_gets_a_whole_file(api: openai.OpenAI, tmp_path) -> None:
    speech = api.audio.speech.create(
        model="tts-1", voice="alloy", input="Hello there.", response_format="wav", extra_body=ENDS
    )
    assert speech.content[:4] == b"RIFF"
    speech.write_to_file(tmp_path / "speech.wav")
    assert (tmp_path / "speech.wav").stat().st_size == len(speech.content)


def test_openai_s_client_streams(api: openai.OpenAI, client: Client) -> None:
    with api.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="ryan", input="Hello there.", response_format="pcm", extra_body=ENDS
    ) as response:
        parts = list(response.iter_bytes())
    assert len(parts) > 1
    assert same_sound(b"".join(parts), client.post(asked(response_format="pcm")).content)


def test_openai_s_client_lists_models_and_reads_errors(api: openai.OpenAI, client: Client) -> None:
    assert client.speaker.model.name in [one.id for one in api.models.list()]
    with pytest.raises(openai.NotFoundError, match="choose one of") as caught:
        api.audio.speech.create(model="tts-1", voice="nobody", input="Hello.")
    assert caught.value.code == "voice_not_found" and caught.value.param == "voice"
    with pytest.raises(openai.BadRequestError, match=r"speed is 5: choose 0\.25 to 4"):
        api.audio.speech.create(model="tts-1", voice="alloy", input="Hello.", speed=5)


def test_openai_s_client_asks_for_one_model_and_reads_the_request_s_id(api: openai.OpenAI) -> None:
    answer = api.models.with_raw_response.retrieve("tts-1", extra_headers={"x-request-id": "mine-1"})
    assert answer.parse().id == "tts-1" and answer.request_id == "mine-1"
    with pytest.raises(openai.NotFoundError) as caught:
        api.models.retrieve("whisper-1")
    assert caught.value.code == "model_not_found" and str(caught.value.request_id).startswith("req_")


# Clients that leave


@contextmanager
def asking(url: str, body: object) -> Iterator[socket.socket]:
    """Send a request and read nothing; leave at the end."""
    content, address = json.dumps(body).encode(), urlsplit(url)
    head = f"POST {PATH} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        yield connection


@pytest.mark.parametrize("parts", [0, 1, 3])
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_a_client_that_leaves_frees_its_row(url: str, client: Client, parts: int, stream_format: str) -> None:
    body = {**LONG, "stream_format": stream_format}
    if parts == 0:
        # The connection is waited for; only the answer, which takes longer, is not.
        brief = httpx.Timeout(PATIENCE, read=0.2)
        with httpx.Client(base_url=url, timeout=brief) as http, pytest.raises(httpx.ReadTimeout):
            http.post(PATH, json={**body, "stream_format": "audio", "stream": False})
    else:
        with (
            httpx.Client(base_url=url, timeout=PATIENCE) as http,
            http.stream("POST", PATH, json=body) as response,
        ):
            reading = response.iter_raw()
            assert all(next(reading) for _ in range(parts))
            assert client.speaker.status.speaking == 1
    wait_until(lambda: row_is_free(client.speaker))
    frames = client.speaker.status.frames
    client.post(asked())
    assert client.speaker.status.frames - frames <= 7, "only the last request makes frames"


def test_a_client_that_leaves_while_it_waits(small) -> None:
    speaker, url = small
    with (
        httpx.Client(base_url=url, timeout=PATIENCE) as http,
        http.stream("POST", PATH, json=LONG) as response,
    ):
        reading = response.iter_raw()  # a generator that nobody holds closes the response
        assert next(reading)
        with asking(url, LONG):
            wait_until(lambda: speaker.status.waiting == 1)
        wait_until(lambda: speaker.status.waiting == 0)
    wait_until(lambda: row_is_free(speaker))


# Clients that wait


def test_too_many_requests_are_told_when_to_come_back(small) -> None:
    speaker, url = small
    with httpx.Client(base_url=url, timeout=PATIENCE) as http, ThreadPoolExecutor(1) as pool:
        with http.stream("POST", PATH, json=LONG) as response:
            reading = response.iter_raw()
            assert next(reading)
            waiting = pool.submit(http.post, PATH, json=asked())
            wait_until(lambda: speaker.status.waiting == 1)
            refused = http.post(PATH, json=asked())
            assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["type"] == "rate_limit_error"
        assert waiting.result(PATIENCE).status_code == 200


def test_a_reader_that_stops_reading_holds_up_nobody(url: str, client: Client) -> None:
    """The sound waits in buffers and as codes; others are spoken meanwhile, and then the rest is read."""
    body = json.dumps({**LONG, "input": "word " * 20, "sampling": {"max_seconds": 20}}).encode()
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port)) as slow:
        head = f"POST {PATH} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        slow.sendall(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: client.speaker.status.speaking == 1)
        assert httpx.post(url + PATH, json=asked(), timeout=PATIENCE).status_code == 200
        slow.settimeout(PATIENCE)
        received = bytearray()
        while part := slow.recv(1 << 16):
            received += part
    assert len(received) > 20 * 24000 * 2 and received.endswith(b"0\r\n\r\n")


# Text that comes in parts


@contextmanager
def talking(url: str, **config: object) -> Iterator[ClientConnection]:
    with connect(url.replace("http", "ws") + PATH + "/stream", open_timeout=PATIENCE) as channel:
        say(channel, "session.config", **config)
        yield channel


def say(channel: ClientConnection, kind: str, **fields: object) -> None:
    channel.send(json.dumps({"type": kind, **fields}))


def hear(channel: ClientConnection) -> tuple[list[dict], bytes]:
    said, sound = [], bytearray()
    try:
        while True:
            message = channel.recv(PATIENCE)
            if isinstance(message, bytes):
                sound += message
            else:
                said.append(json.loads(message))
    except ConnectionClosed:
        return said, bytes(sound)


def test_text_in_parts_is_heard_sentence_by_sentence(url: str) -> None:
    with talking(url, voice="ryan", seed=3, sampling={"max_seconds": 60}) as channel:
        say(channel, "input.text", text="The first sentence. The ")
        start = json.loads(channel.recv(PATIENCE))
        assert start == {"type": "audio.start", "format": "pcm", "sample_rate": 24000, "seed": 3}
        first = channel.recv(PATIENCE)
        assert isinstance(first, bytes), "heard before the text is complete"
        say(channel, "input.text", text="second one.")
        say(channel, "input.done")
        said, sound = hear(channel)
    assert [one["type"] for one in said] == ["audio.done", "session.done"]
    assert said[0]["text"] == "The first sentence. The second one."
    assert said[0]["samples"] * 2 == len(first + sound) > 0
    assert said[1]["usage"]["output_tokens"] > 12, "frames of both sentences"


def test_websockets_without_a_sentence_hold_no_row(url: str, client: Client) -> None:
    """More of them than rows: others are spoken meanwhile."""
    status = client.speaker.status
    with ExitStack() as stack:
        sockets = [stack.enter_context(talking(url, seed=3)) for _ in range(status.rows + 1)]
        for channel in sockets:
            say(channel, "input.text", text="Hello ")
        wait_until(lambda: client.speaker.status.silent == len(sockets))
        assert httpx.post(url + PATH, json=asked(), timeout=PATIENCE).status_code == 200
        assert client.speaker.status.silent == len(sockets)
        for channel in sockets:
            say(channel, "input.text", text="there.")
            say(channel, "input.done")
        assert [hear(channel)[0][-1]["type"] for channel in sockets] == ["session.done"] * len(sockets)


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every take repeats itself until it is cut off."""
    monkeypatch.setattr("qwen3_tts_morph.morph.speech.pieces.judge_end", lambda *_: "loop")


def test_bytes_that_are_cut_off_end_as_an_error(url: str, cut: None, caplog) -> None:
    logging.getLogger("uvicorn.error").addFilter(is_worth_a_line)
    received = bytearray()
    with (
        pytest.raises(httpx.RemoteProtocolError, match="incomplete"),
        httpx.stream("POST", url + PATH, json=asked(response_format="pcm"), timeout=PATIENCE) as answer,
    ):
        for part in answer.iter_raw():
            received += part
    logging.getLogger("uvicorn.error").removeFilter(is_worth_a_line)
    assert answer.status_code == 200 and len(received) == 6 * 3840, "all of the sound that there is"
    assert "cut off (loop)" in caplog.text and "without completing" not in caplog.text


def test_a_websocket_tells_the_words_of_text_in_parts(telling: Client) -> None:
    words, sent = [], 0
    with (
        listening(telling.app) as address,
        talking(address, return_timestamps=True, sampling={"max_seconds": 4}) as channel,
    ):
        say(channel, "input.text", text="A word of $5. The ")
        while not words:
            message = channel.recv(PATIENCE)
            sent += len(message) if isinstance(message, bytes) else 0
            words += [] if isinstance(message, bytes) else json.loads(message).get("timestamps", [])
        say(channel, "input.text", text="last one.")
        say(channel, "input.done")
        said, sound = hear(channel)
    words += [word for one in said for word in one.get("timestamps", [])]
    assert [word["word"] for word in words] == ["A", "word", "of", "$5.", "The", "last", "one."]
    assert ["A word of $5. The last one."[one["first_char"] : one["last_char"]] for one in words] == [
        one["word"] for one in words
    ]
    times = [time for word in words for time in (word["start_time"], word["end_time"])]
    assert times == sorted(times) and 0 < times[-1] <= (sent + len(sound)) / 48000 + 0.001


def test_text_in_parts_may_be_fast_and_says_what_is_ignored(url: str) -> None:
    config = {"seed": 3, "sampling": {"max_seconds": 0.5}, "speed": 2, "instructions": "softly"}
    with talking(url, **config) as channel:
        say(channel, "input.text", text="Hello there.")
        say(channel, "input.done")
        said, sound = hear(channel)
    assert said[0]["type"] == "audio.start" and said[1]["ignored"] == ["instructions"]
    assert len(sound) // 2 == said[1]["samples"] == said[2]["usage"]["output_tokens"] * 960


@pytest.mark.parametrize(
    ("config", "messages", "words"),
    [
        ({"voice": "nobody"}, [("input.text", {"text": "Hello."})], "choose one of"),
        ({"layout": "word"}, [], "sentence or token"),
        ({"layout": "token"}, [("input.text", {"text": "Hello."})], "x-vector"),
        ({"input": "Hello."}, [], "does not know"),
        ({"speed": 9}, [], "choose 0.25 to 4"),
        ({}, [("input.text", {})], "input.text with a text"),
        ({}, [("play", {})], "not known here"),
        ({}, [("input.text", {"text": "x" * 20_001})], "more than 20000 characters"),
        ({}, [("input.text", {"text": "... "}), ("input.done", {})], "no letter"),
        ({}, [("input.done", {})], "text is empty: send input.text"),
        ({}, [("input.text", {"text": "Hi. [pause 99] "})], "[pause 99] is not a pause"),
        (
            {},
            [("input.text", {"text": "Hi. [pause 40] [pa"}), ("input.text", {"text": "use 40]"})],
            "text has 80 s of pauses and 60 are allowed",
        ),
    ],
)
def test_what_a_websocket_refuses(url: str, client: Client, config, messages, words) -> None:
    with talking(url, **config) as channel:
        for kind, fields in messages:
            say(channel, kind, **fields)
        said, _ = hear(channel)
    assert said[-1]["type"] == "error" and words in said[-1]["message"] == said[-1]["error"]["message"]
    wait_until(lambda: row_is_free(client.speaker))


def test_a_websocket_without_messages_is_closed(small) -> None:
    with connect(small[1].replace("http", "ws") + PATH + "/stream", open_timeout=PATIENCE) as channel:
        said, _ = hear(channel)
    assert "no message came for 2 s" in said[-1]["message"]


def test_a_websocket_whose_text_pauses_for_too_long_is_closed(small) -> None:
    speaker, url = small
    with talking(url, sampling={"max_seconds": 60}) as channel:
        say(channel, "input.text", text="The first sentence. And then")
        said, sound = hear(channel)
    assert sound and "no message came for 1 s" in said[-1]["message"], "what was said before is spoken"
    wait_until(lambda: row_is_free(speaker))


@pytest.mark.parametrize("by", ["cancel", "leave"])
def test_a_websocket_that_is_left_frees_its_row_and_is_counted_as_left(url, client, by, caplog) -> None:
    left, spoken = answers(client, 499), answers(client, 200)
    with talking(url, sampling={"max_seconds": 100}) as channel:
        say(channel, "input.text", text="word " * 20 + ". More")
        assert json.loads(channel.recv(PATIENCE))["type"] == "audio.start"
        channel.recv(PATIENCE)
        if by == "cancel":
            say(channel, "cancel")
            assert all(one["type"] != "error" for one in hear(channel)[0])
    wait_until(lambda: row_is_free(client.speaker))
    wait_until(lambda: answers(client, 499) == left + 1)
    assert answers(client, 200) == spoken and "Exception in ASGI" not in caplog.text


def answers(client: Client, status: int) -> float:
    found = re.search(rf'requests_total{{status="{status}"}} (\S+)', client.get("/metrics").text)
    return float(found[1]) if found else 0.0


def test_a_body_that_does_not_end_is_not_waited_for(small) -> None:
    address = urlsplit(small[1])
    with socket.create_connection((address.hostname, address.port)) as slow:
        head = f"POST {PATH} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
        slow.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        slow.settimeout(PATIENCE)
        assert slow.recv(1 << 12).startswith(b"HTTP/1.1 408")

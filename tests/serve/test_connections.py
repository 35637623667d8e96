"""Connections that ask nothing are closed; those that ask, or are WebSockets, are not."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
from qwen3_tts_morph.serve import server
from qwen3_tts_morph.serve.connections import http_protocol, websocket_protocol
from qwen3_tts_morph.serve.options import Limits, ServerOptions
from websockets.sync.client import connect

from tests.patience import PATIENCE, wait_until
from tests.serve.conftest import Client, asked, listening, row_is_free

PATH = "/v1/audio/speech"


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port)) as made:
        made.settimeout(PATIENCE)
        yield made


def read_to_end(connection: socket.socket) -> bytes:
    received = bytearray()
    while part := connection.recv(1 << 16):
        received += part
    return bytes(received)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", b""),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /hea", b"HTTP/1.1 200"),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n1", b"HTTP/1.1 200"),
    ],
)
def test_a_connection_without_a_complete_request_is_closed(
    client: Client, sent: bytes, answer: bytes
) -> None:
    seconds = PATIENCE if answer else 0.2  # where there is an answer, it comes first
    protocol, made = watching(seconds)
    with listening(client.app, http=protocol, timeout_keep_alive=PATIENCE) as url, connected(url) as silent:
        silent.sendall(sent)
        if answer:
            received = silent.recv(1 << 16)
            wait_until(lambda: b"\r\n\r\n" in received)
            give_up(made[0])
            assert received.startswith(answer)
        assert b"HTTP/1.1" not in read_to_end(silent)


def watching(seconds: float) -> tuple[type, list]:
    """Return a protocol that gives up after ``seconds``, and the list to which its connections are added."""
    made: list = []

    class Watched(http_protocol(Limits(idle_seconds=seconds))):  # type: ignore[misc]
        def connection_made(self, transport) -> None:
            super().connection_made(transport)
            made.append(self)

    return Watched, made


@pytest.fixture
def watched(client: Client) -> Iterator[tuple[str, list]]:
    """A server that does not give up by itself, and its connections."""
    protocol, made = watching(PATIENCE)
    with listening(client.app, http=protocol) as url:
        yield url, made


def give_up(connection) -> None:
    connection.loop.call_soon_threadsafe(connection.give_up)


def test_an_answer_is_not_broken_off(watched, client: Client) -> None:
    url, made = watched
    body = {**asked("word " * 20, response_format="pcm"), "sampling": {"max_seconds": 3}}
    with httpx.stream("POST", url + PATH, json=body, timeout=PATIENCE) as response:
        reading = response.iter_raw()
        received = len(next(reading))
        give_up(made[0])
        received += sum(map(len, reading))
    assert received == 38 * 3840, "to its end"
    wait_until(lambda: row_is_free(client.speaker))


def test_a_websocket_is_not_closed(watched) -> None:
    url, made = watched
    with connect(url.replace("http", "ws") + PATH + "/stream", open_timeout=PATIENCE) as channel:
        give_up(made[0])
        for message in (
            {"type": "session.config", "sampling": {"max_seconds": 0.5}},
            {"type": "input.text", "text": "Hello there. "},
            {"type": "input.done"},
        ):
            channel.send(json.dumps(message))
        assert json.loads(channel.recv(PATIENCE))["type"] == "audio.start"


def test_the_server_has_this_protocol(monkeypatch) -> None:
    import uvicorn

    made = []
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    monkeypatch.setattr(server, "make_app", lambda _: None)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, _: made.append(self.config))
    server.run_server(ServerOptions(port=0, limits=Limits(idle_seconds=7)))
    assert made[0].http.idle_seconds == 7


def asking(url: str, body: dict) -> bytes:
    content, host = json.dumps(body).encode(), urlsplit(url).netloc
    head = f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


SILENCE = {**asked("Hi. [pause 60] there."), "response_format": "wav"}  # 3 MB at once


@pytest.mark.parametrize(
    "ask",
    [
        lambda url: asking(url, SILENCE),
        lambda url: asking(url, {**SILENCE, "stream_format": "sse"}),
        lambda url: f"GET /page.js HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode() * 3000,
    ],
    ids=["bytes", "events", "files"],
)
def test_a_client_that_takes_nothing_is_disconnected(client: Client, ask) -> None:
    protocol = http_protocol(Limits(seconds=1.0))
    made = []
    protocol.connection_lost = noting(protocol.connection_lost, made)
    with listening(client.app, http=protocol) as url, stalled(url) as connection:
        connection.sendall(ask(url))
        wait_until(lambda: bool(made))
    wait_until(lambda: row_is_free(client.speaker))


def test_a_websocket_that_takes_nothing_is_disconnected(client: Client) -> None:
    protocol = websocket_protocol(Limits(seconds=1.0))
    made = []
    protocol.connection_lost = noting(protocol.connection_lost, made)
    messages = (
        {"type": "session.config", "voice": "ryan", "sampling": {"max_seconds": 0.5}},
        {"type": "input.text", "text": "Hi. [pause 59] there. "},
        {"type": "input.done"},
    )
    with listening(client.app, ws=protocol) as url, stalled(url) as connection:
        upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        key = f"Sec-WebSocket-Key: {'A' * 22}==\r\n\r\n"
        connection.sendall(
            f"GET {PATH}/stream HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n{upgrade}{key}".encode()
        )
        assert b" 101 " in connection.recv(1 << 10)
        for message in messages:
            text = json.dumps(message).encode()
            connection.sendall(bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text)  # masked with zeros
        wait_until(lambda: bool(made))
    wait_until(lambda: row_is_free(client.speaker))


def noting(lost, made: list):
    """Return ``connection_lost``, which also notes the call."""

    def note(self, exc) -> None:
        made.append(exc)
        lost(self, exc)

    return note


@contextmanager
def stalled(url: str) -> Iterator[socket.socket]:
    """A connection whose client has hardly any room for what comes, and reads nothing of it."""
    address = urlsplit(url)
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        made.connect((address.hostname, address.port))
        yield made


@pytest.mark.parametrize(
    ("rows", "device", "connections"), [(None, "cpu", 212), (None, "cuda", 218), (30, "cpu", 240)]
)
def test_the_rows_count_among_the_connections_that_are_taken(
    rows: int | None, device: str, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, those that wait, and 200 more; where the options name no rows, the 2 of a CPU and the 8 of a GPU."""
    import uvicorn

    made = []
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    monkeypatch.setattr(server, "make_app", lambda _: None)
    monkeypatch.setattr("qwen3_tts_morph.serve.commands.engine.choose_device", lambda _: device)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, _: made.append(self.config))
    server.run_server(ServerOptions(port=0, rows=rows, waiting=10))
    assert made[0].limit_concurrency == connections

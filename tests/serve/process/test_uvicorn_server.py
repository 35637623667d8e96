"""Connections that ask nothing are closed; those that ask, or are WebSockets, are not."""

import json
import logging
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import httpx
import pytest
from qwen3_tts_morph.serve.api.options import Limits, ServerOptions
from qwen3_tts_morph.serve.process import server, uvicorn_server
from qwen3_tts_morph.serve.process.uvicorn_server import HEAD_BYTES, http_protocol, websocket_protocol
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.patience import PATIENCE, wait_until
from tests.serve.conftest import Client, asked, listening, row_is_free

PATH = "/v1/audio/speech"
MANY = 1000  # connections
HELD = 0.05  # seconds


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
def test_a_connection_without_a_complete_request_is_closed(client, sent, answer) -> None:
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

    class Watched(http_protocol(Limits(idle_seconds=seconds), MANY)):  # type: ignore[misc]
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


def test_the_server_limits_its_connections(monkeypatch) -> None:
    """To its rows, queued requests, and 200 more."""
    made, app = [], Mock()
    app.state.speaker.status.rows = 30
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    monkeypatch.setattr(server, "make_app", lambda _: app)
    monkeypatch.setattr("uvicorn.Server.run", lambda self, _: made.append(self.config))
    server.run_server(ServerOptions(port=0, waiting=10, limits=Limits(idle_seconds=7)))
    assert made[0].http.idle_seconds == 7 and made[0].http.most == 240
    assert made[0].backlog <= server.BACKLOG


def asking(url: str, body: dict) -> bytes:
    content, host = json.dumps(body).encode(), urlsplit(url).netloc
    head = f"POST {PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


SILENCE = {**asked("Hi. [pause 60] there."), "response_format": "wav"}  # 3 MB at once


@pytest.mark.parametrize(
    "ask",
    [
        lambda url: asking(url, SILENCE),
        pytest.param(lambda url: asking(url, {**SILENCE, "stream_format": "sse"}), marks=pytest.mark.slow),
        pytest.param(
            lambda url: f"GET /page.js HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode() * 3000,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["bytes", "events", "files"],
)
def test_a_client_that_takes_nothing_is_disconnected(client: Client, ask) -> None:
    protocol = http_protocol(Limits(seconds=1.0), MANY)
    made = []
    protocol.connection_lost = noting(protocol.connection_lost, made)
    with listening(client.app, http=protocol) as url, stalled(url) as connection:
        connection.sendall(ask(url))
        wait_until(lambda: bool(made))
    wait_until(lambda: row_is_free(client.speaker))


@pytest.mark.slow
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
        upgraded(url, connection)
        for message in messages:
            connection.sendall(frame(TEXT, json.dumps(message).encode()))
        wait_until(lambda: bool(made))
    wait_until(lambda: row_is_free(client.speaker))


def noting(lost, made: list):
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


# Heads


@contextmanager
def bounded(
    client: Client, most: int = MANY, limits: Limits | None = None, held: float = HELD, **more: Any
) -> Iterator[str]:
    """A server with the limits of the real one; yield its address."""
    limits = limits or Limits(idle_seconds=PATIENCE)
    http, ws = http_protocol(limits, most), websocket_protocol(limits)
    http.held_seconds = held  # type: ignore[attr-defined]
    with listening(client.app, http=http, ws=ws, h11_max_incomplete_event_size=HEAD_BYTES, **more) as url:
        yield url


GET = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n".encode()
WITHOUT_END = {
    "header": (GET + b"X-Long: ", b"a" * 4096),
    "headers": (GET, b"X-N: 1\r\n" * 512),
    "line": (b"GET /", b"a" * 4096),
    "trailers": (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"X-N: 1\r\n" * 512),
    "extension": (POST + b"Transfer-Encoding: chunked\r\n\r\n2;", b"a" * 4096),
}


@pytest.mark.parametrize("attack", WITHOUT_END)
def test_a_head_without_an_end_is_refused(client: Client, attack: str) -> None:
    begin, more = WITHOUT_END[attack]
    with bounded(client) as url, connected(url) as one, pytest.raises(ConnectionError):
        one.sendall(begin)
        for _ in range(64 << 20 >> 12):  # what the system's buffers take is far less
            one.sendall(more)


@pytest.mark.parametrize(("size", "status"), [(60_000, 200), (100_000, 400)])
def test_heads_have_a_limit(client, size, status) -> None:
    with bounded(client) as url, connected(url) as one:
        one.sendall(GET + b"Connection: close\r\nX-Long: " + b"a" * size + b"\r\n\r\n")
        answer = read_to_end(one)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        if status == 400:
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"].endswith(": send one")


def test_who_is_refused_waits_before_the_connection_ends(client: Client) -> None:
    with bounded(client, held=PATIENCE) as url, connected(url) as one, connected(url) as other:
        one.sendall(b"GET /" + b"a" * (2 * HEAD_BYTES))
        assert one.recv(1 << 16).startswith(b"HTTP/1.1 400 ")
        one.settimeout(0.1)
        with pytest.raises(TimeoutError):
            one.recv(1)
        assert ask(other).startswith(b"HTTP/1.1 200 ")


# Their number


def ask(connection: socket.socket, path: str = "/health") -> bytes:
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    return read_to_end(connection)


def is_closed(connection: socket.socket) -> bool:
    try:
        return read_to_end(connection) == b""
    except ConnectionResetError:
        return True


def test_connections_that_ask_nothing_make_room(client: Client) -> None:
    with bounded(client, most=3) as url, ExitStack() as opened:
        silent = [opened.enter_context(connected(url)) for _ in range(3)]
        for one in silent[1:]:  # half a head is nothing
            one.sendall(GET)
        assert ask(opened.enter_context(connected(url)), "/v1/models").startswith(b"HTTP/1.1 200 ")
        assert all(is_closed(one) for one in silent)


@pytest.mark.skipif(sys.platform != "linux", reason="not run: this system has one address of its own")
def test_the_address_with_the_most_idle_connections_makes_room(client: Client) -> None:
    with bounded(client, most=3) as url, ExitStack() as opened:
        first = opened.enter_context(connected(url))
        to = urlsplit(url)
        others = [
            opened.enter_context(
                socket.create_connection((to.hostname, to.port), PATIENCE, source_address=("127.0.0.2", 0))
            )
            for _ in range(2)
        ]
        assert ask(opened.enter_context(connected(url)), "/v1/models").startswith(b"HTTP/1.1 200 ")
        assert all(is_closed(one) for one in others)
        assert ask(first).startswith(b"HTTP/1.1 200 ")


def test_websockets_that_say_nothing_make_room(client: Client) -> None:
    with bounded(client, most=2) as url, ExitStack() as opened:
        address = url.replace("http", "ws") + PATH + "/stream"
        silent = [opened.enter_context(connect(address, open_timeout=PATIENCE)) for _ in range(2)]
        assert ask(opened.enter_context(connected(url)), "/v1/models").startswith(b"HTTP/1.1 200 ")
        for one in silent:
            with pytest.raises(ConnectionClosed):
                one.recv(PATIENCE)


@pytest.fixture
def talking(client: Client) -> Iterator[str]:
    """A server whose two places are taken by WebSockets that are spoken to; yield its address."""
    with bounded(client, most=2) as url, ExitStack() as opened:
        for _ in range(2):
            address = url.replace("http", "ws") + PATH + "/stream"
            channel = opened.enter_context(connect(address, open_timeout=PATIENCE))
            channel.send(json.dumps({"type": "session.config", "voice": "ryan"}))
            channel.send(json.dumps({"type": "input.text", "text": "Hello"}))
            assert json.loads(channel.recv(PATIENCE))["type"] == "audio.start"
        yield url
    wait_until(lambda: row_is_free(client.speaker))


def test_health_is_answered_beyond_the_limit(talking: str) -> None:
    for _ in range(3):
        with connected(talking) as one:
            assert ask(one).startswith(b"HTTP/1.1 200 ")
    with connected(talking) as one:
        head, _, body = ask(one, "/v1/models").partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ") and b"retry-after: 2" in head.lower()
        assert json.loads(body)["error"]["type"] == "server_error"
    address = talking.replace("http", "ws") + PATH + "/stream"
    with pytest.raises(InvalidStatus) as refused, connect(address, open_timeout=PATIENCE):
        pass
    assert refused.value.response.status_code == 503
    with ExitStack() as opened:  # idle ones hold no place from /health
        for _ in range(2 * uvicorn_server.SPARE):
            opened.enter_context(connected(talking))
        assert ask(opened.enter_context(connected(talking))).startswith(b"HTTP/1.1 200 ")


def test_one_connection_too_many_is_closed_at_once(talking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "SPARE", 0)
    with connected(talking) as one:
        head, _, body = read_to_end(one).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ") and b"retry-after: 2" in head
        assert "as many connections" in json.loads(body)["error"]["message"]


# Frames of WebSockets


def upgraded(url: str, connection: socket.socket) -> None:
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    key = f"Sec-WebSocket-Key: {'A' * 22}==\r\n\r\n"
    connection.sendall(f"GET {PATH}/stream HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n{upgrade}{key}".encode())
    assert b" 101 " in connection.recv(1 << 10)


def frame(opcode: int, content: bytes = b"", final: bool = True) -> bytes:
    return bytes([opcode | 0x80 * final, 0x80 | len(content), 0, 0, 0, 0]) + content  # masked with zeros


TEXT, MORE, PING = 1, 0, 9


def test_empty_fragments_without_an_end_are_refused(client: Client) -> None:
    with bounded(client, limits=Limits(body_bytes=4096)) as url, connected(url) as one:
        upgraded(url, one)
        with pytest.raises(ConnectionError):
            one.sendall(frame(TEXT, final=False))
            for _ in range(64 << 20 >> 12):
                one.sendall(frame(MORE, final=False) * 700)


@pytest.mark.parametrize("opcode", [9, 10], ids=["pings", "pongs"])
def test_frames_that_are_no_message_are_read_up_to_a_number(client: Client, opcode: int, monkeypatch) -> None:
    monkeypatch.setattr(uvicorn_server, "MOST_FRAMES", 50)
    say = {"type": "session.config", "voice": "ryan"}
    with bounded(client) as url, connected(url) as one:
        upgraded(url, one)
        one.sendall(frame(opcode) * uvicorn_server.MOST_FRAMES + frame(TEXT, json.dumps(say).encode()))
        one.sendall(frame(TEXT, b'{"type": "no"}'))
        assert b"is not known here" in read_to_end(one), "all of them, and the messages behind them"
    with bounded(client) as url, connected(url) as one, pytest.raises(ConnectionError):
        upgraded(url, one)
        while True:
            one.sendall(frame(opcode) * uvicorn_server.MOST_FRAMES)


def test_a_client_that_takes_no_pongs_is_disconnected(client: Client, monkeypatch) -> None:
    monkeypatch.setattr(uvicorn_server, "UNSENT_BYTES", 1 << 14)
    with bounded(client, limits=Limits(body_bytes=1 << 30)) as url, connected(url) as one:
        upgraded(url, one)
        with pytest.raises(ConnectionError):
            for _ in range(64 << 20 >> 12):
                one.sendall(frame(PING, bytes(120)) * 32)


def test_a_text_that_is_not_utf_8_is_told_by_closing(client: Client, caplog) -> None:
    log = logging.getLogger("uvicorn.error")
    log.addFilter(server.is_worth_a_line)
    try:
        with bounded(client) as url, connected(url) as one:
            upgraded(url, one)
            one.sendall(frame(TEXT, b'{"type": "\xff"}'))
            assert read_to_end(one)[:4] == bytes([0x88, 2, 0x03, 0xEF]), "1007"
    finally:
        log.removeFilter(server.is_worth_a_line)
    assert "Traceback" not in caplog.text and "UnicodeDecodeError" not in caplog.text


def test_a_text_that_is_a_number_is_told_so(watched) -> None:
    url, _ = watched
    with connect(url.replace("http", "ws") + PATH + "/stream", open_timeout=PATIENCE) as channel:
        channel.send(json.dumps({"type": "session.config"}))
        channel.send(json.dumps({"type": "input.text", "text": 5}))
        error = json.loads(channel.recv(PATIENCE))["error"]
        assert "is no string: send input.text with a text" in error["message"] and error["param"] == "text"

"""The server as a program: its command line, what it needs, and the demo voice in a process of its own."""

import argparse
import asyncio
import importlib.util
import logging
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest
from qwen3_tts_morph.serve.api.options import KEY_VARIABLE, Limits
from qwen3_tts_morph.serve.process import server, uvicorn_server
from qwen3_tts_morph.serve.process.server import OFFERED, bind, free_ports

import pack
from tests.patience import PATIENCE


def read(*words: str):
    parser = argparse.ArgumentParser()
    server.add_arguments(parser)
    return server.read_options(parser.parse_args(words))


def test_the_command_line_and_the_environment_make_the_options(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret-key")
    monkeypatch.setenv("MORPH_TTS_HOSTS", "Studio.example, other")
    options = read("--host", "0.0.0.0", "--port", "0", "--voices", str(tmp_path), "--most-characters", "100")
    assert (options.access.host, options.access.key, options.access.hosts) == (
        "0.0.0.0",
        "secret-key",
        ("studio.example", "other"),
    )
    assert (options.port, options.voices, options.limits) == (0, tmp_path, Limits(characters=100))


def test_a_list_of_words_is_read_before_a_model_is_loaded(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    path = tmp_path / "names.txt"
    path.write_text("Nguyen = win", encoding="utf-8")
    assert read("--pronunciation", str(path)).pronunciation[0].words == (("Nguyen", "win"),)
    path.write_text("Nguyen", encoding="utf-8")
    with pytest.raises(ValueError, match=r"names\.txt cannot be read"):
        read("--pronunciation", str(path))


def test_the_defaults_listen_on_loopback(monkeypatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert (read().access.host, read().port, read().checkpoint) == ("127.0.0.1", 8765, None)


def test_bad_options_are_one_sentence(monkeypatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(ValueError, match=KEY_VARIABLE):
        read("--host", "0.0.0.0")


def test_missing_packages_are_named_with_the_command_that_installs_them(monkeypatch) -> None:
    found = importlib.util.find_spec
    missing = {"uvicorn", "prometheus_client"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else found(name))
    with pytest.raises(ValueError, match="the server needs uvicorn, prometheus-client: run ") as caught:
        server.run_server(read())
    assert re.search(r'-m pip install "uvicorn>=[\d.]+" "prometheus-client>=[\d.]+"$', str(caught.value))


def test_the_extra_has_the_packages_that_the_server_needs() -> None:
    tomllib = pytest.importorskip("tomllib", reason="not run: Python 3.10 has no tomllib")
    project = tomllib.loads((pack.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["serve"] == list(server.PACKAGES.values())


def test_the_module_needs_nothing_before_it_runs() -> None:
    """speak.py reads the server's options before its environment exists."""
    code = (
        "import pack, sys; pack.load(); import qwen3_tts_morph.serve.process.server; "
        "heavy = {'torch', 'numpy', 'starlette', 'anyio', 'fastapi', 'pydantic'}; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=pack.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_address_that_is_taken_is_an_error_before_the_model_is_loaded(monkeypatch) -> None:
    monkeypatch.setattr(server, "make_app", lambda _: pytest.fail("the model was loaded"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError):
            server.run_server(read("--port", str(taken.getsockname()[1])))


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_name_that_no_host_can_have_is_an_error_of_the_address(host: str) -> None:
    with pytest.raises(OSError, match="no host can have this name"):
        server.bind(host, 0)


def test_an_answer_that_ctrl_c_ends_leaves_no_traceback() -> None:
    def record(error: BaseException | None) -> logging.LogRecord:
        about = None if error is None else (type(error), error, None)
        return logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "Exception in ASGI application", (), about)

    assert not server.is_worth_a_line(record(asyncio.CancelledError()))
    assert not server.is_worth_a_line(record(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no")))
    assert server.is_worth_a_line(record(None)) and server.is_worth_a_line(record(ValueError()))


@pytest.mark.parametrize(
    ("files", "wanted", "connections"), [(1024, 266, 266), (160, 266, 64), (10, 266, 1), (-1, 5000, 5000)]
)
def test_connections_stay_below_the_limit_of_open_files(
    files: int, wanted: int, connections: int, monkeypatch, caplog
) -> None:
    resource = pytest.importorskip("resource", reason="not run: Windows has no limit of open files")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    found, backlog = server.fit_connections(wanted)
    assert found == connections and 0 < backlog <= 128
    assert (connections < wanted) == ("raise the limit of open files" in caplog.text)


@pytest.mark.parametrize("words", [uvicorn_server.ACCEPT_FAILED, uvicorn_server.NO_REQUEST])
def test_what_many_clients_can_cause_is_logged_once_a_second(words: str, monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr(uvicorn_server.time, "monotonic", lambda: now[0])
    seldom = uvicorn_server.Seldom(words)

    def record(words: str) -> logging.LogRecord:
        return logging.LogRecord("asyncio", logging.ERROR, "", 0, words, (), (OSError, OSError(), None))

    passed = [seldom.filter(record(f"{words}\nsocket: <it>")) for _ in range(2000)]
    assert passed[0] and not any(passed[1:]) and seldom.filter(record("another"))
    now[0] += 1.5
    later = record(words)
    assert seldom.filter(later) and later.exc_info is None


@pytest.fixture
def url() -> Iterator[str]:
    """The server of the demo voice, as a user starts it."""
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "serve", "serve", "--port", str(port), "--rows", "2"]
    process = subprocess.Popen(command, cwd=pack.ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=PATIENCE)
        assert said == b"", "nothing goes to stdout"


def wait_until_ready(url: str, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None and time.monotonic() < deadline
        try:
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        except httpx.ConnectError:
            time.sleep(0.2)


@pytest.mark.slow
def test_the_demo_voice_is_served(url: str) -> None:
    import numpy as np

    voices = httpx.get(f"{url}/v1/audio/voices").json()["voices"]
    assert [one["id"] for one in voices] == ["heart", "emma", "michael", "george"]
    body = {
        "input": "Hello, this is the speech server.",
        "voice": "michael",
        "seed": 1,
        "response_format": "pcm",
    }
    parts = []
    with httpx.stream("POST", f"{url}/v1/audio/speech", json=body, timeout=PATIENCE) as response:
        parts = list(response.iter_raw())
    samples = np.frombuffer(b"".join(parts), "<i2") / 32768
    assert len(parts) > 2 and 1 < len(samples) / 24000 < 6
    assert np.sqrt(np.mean(samples**2)) > 0.01


def test_free_ports_differ_and_can_be_listened_on() -> None:
    found = free_ports(5)
    assert len(set(found)) == 5 and set(found) <= set(OFFERED)
    for port in found:
        with socket.socket() as one:
            one.bind(("127.0.0.1", port))


def test_a_taken_port_is_not_given_out(monkeypatch: pytest.MonkeyPatch) -> None:
    free, taken = free_ports(2)
    monkeypatch.setattr(server, "OFFERED", range(min(free, taken), max(free, taken) + 1, abs(free - taken)))
    with socket.socket() as one:
        one.bind(("", taken))
        one.listen()
        assert free_ports(1) == [free]
        with pytest.raises(OSError, match="2 ports are needed"):
            free_ports(2)


@pytest.mark.skipif(os.name == "nt", reason="not run: Windows takes another structure for this option")
def test_a_connection_that_was_reset_is_not_accepted() -> None:
    with bind("127.0.0.1", 0) as listener:
        listener.listen(8)
        with socket.create_connection(listener.getsockname()) as gone:
            gone.sendall(b"GET / HTTP/1.1\r\n\r\n")
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with socket.create_connection(listener.getsockname()) as there:
            accepted, address = listener.accept()
            accepted.close()
            assert address == there.getsockname()

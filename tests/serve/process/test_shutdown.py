"""How the server ends: who waits is told so, who listening goes on for a while, and the process goes in time."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import Any

import httpx
import pytest
from qwen3_tts_morph.serve.api.options import ServerOptions

import pack
from tests.patience import PATIENCE
from tests.serve.conftest import Client, asked
from tests.serve.routes.test_speech import events_of

LONG = {"response_format": "pcm", "stream_format": "sse", "sampling": {"max_seconds": 60}}


async def become(what) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.01)


def test_who_waits_and_who_listening_is_told(serve) -> None:
    client = serve(ServerOptions(rows=1))
    speaker = client.speaker

    async def main() -> list[httpx.Response]:
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=PATIENCE) as http:

            def post(**more: Any) -> asyncio.Task[httpx.Response]:
                return asyncio.create_task(http.post("/v1/audio/speech", json=asked("word " * 40, **more)))

            listening = post(**LONG)
            await become(lambda: any(one.has_begun for one in speaker.readings))
            parts = {"stream_format": "multipart", "event_interval": 0.001}
            waits = [post(**LONG), post(stream=False), post(response_format="mp3"), post(**parts)]
            await become(lambda: speaker.status.waiting == 4)
            speaker.stop_taking()
            told = [*await asyncio.gather(*waits), await http.post("/v1/audio/speech", json=asked())]
            ready = await http.get("/ready")
            assert ready.status_code == 503 and speaker.readings and not listening.done()
            speaker.end_all()
            return [*told, await listening]

    *told, heard = asyncio.run(main())
    for one in told:
        assert one.status_code == 503 and one.headers["retry-after"] == "5"
        assert one.json()["error"]["type"] == "server_error" and "shutting down" in one.text
    name, fields = events_of(heard.content)[-1]
    assert (heard.status_code, name) == (200, "error") and "shutting down" in fields["error"]["message"]
    assert not speaker.readings


# A server whose speaker ends after so many seconds: 1000 is a long step of the codec.
STUCK = """
import logging, sys, time
import pack
pack.load()
from types import SimpleNamespace
from qwen3_tts_morph.serve.api.options import Limits
from qwen3_tts_morph.serve.process import uvicorn_server as shutdown
from qwen3_tts_morph.serve.process.server import bind

async def app(scope, receive, send):
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
        print("started", flush=True)
    time.sleep(float(sys.argv[1]))

app.state = SimpleNamespace(speaker=SimpleNamespace(
    readings=[1], stop_taking=lambda: print("told", flush=True), end_all=lambda: print("ended", flush=True)
))
logging.basicConfig(level=logging.INFO)
shutdown.SPEAKING_S = shutdown.TOLD_S = 0.1
shutdown.LAST_S = 1.0
with bind("127.0.0.1", 0) as bound:
    shutdown.UvicornServer(app, Limits(), 100, 16).run([bound])
"""


@pytest.mark.skipif(os.name == "nt", reason="not run: Windows ends a process without asking it")
@pytest.mark.parametrize(("seconds", "code"), [("0", 0), ("1000", 1)])
def test_the_process_ends_whatever_still_runs(seconds: str, code: int) -> None:
    command = [sys.executable, "-c", STUCK, seconds]
    process = subprocess.Popen(command, cwd=pack.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        said, log = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == code and said == "told\nended\n"
    assert ("the process ends without it" in log) == (code == 1)


def test_less_than_ten_seconds_are_enough() -> None:
    from qwen3_tts_morph.serve.process import uvicorn_server as shutdown

    asked_for = shutdown.SPEAKING_S + shutdown.TOLD_S + shutdown.CLOSING_S
    assert asked_for < shutdown.LAST_S < 10 - 2 * shutdown.LOOKS_EVERY_S


def test_the_application_has_what_is_told(client: Client) -> None:
    assert client.app.state.speaker is client.speaker

"""Servers of tiny random models: in this process, or listening on loopback."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import LoadOptions
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.serve.api.options import ServerOptions
from qwen3_tts_morph.serve.routes import speaker as speaker_module
from qwen3_tts_morph.serve.routes.app import App
from qwen3_tts_morph.serve.routes.speaker import Speaker

from lab.random_checkpoint import write_checkpoint
from tests.morph.conftest import checkpoint, load, one_thread, recording
from tests.morph.endless import pin_ends
from tests.patience import PATIENCE, wait_until

__all__ = ["checkpoint", "load", "one_thread", "recording"]


class Client:
    """A server in this process, and an HTTP client of it. A method per verb; each runs its own event loop."""

    def __init__(self, app: Any, speaker: Speaker, headers: dict[str, str] | None = None):
        self.app, self.speaker = app, speaker
        self.headers = headers or {}

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.run(lambda http: http.get(path, **more))

    def post(self, body: Any, **more: Any) -> httpx.Response:
        return self.run(lambda http: http.post("/v1/audio/speech", json=body, **more))

    def run(self, ask: Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]) -> httpx.Response:
        async def run() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            base = "http://127.0.0.1"
            async with httpx.AsyncClient(
                transport=transport, base_url=base, headers=self.headers, timeout=PATIENCE
            ) as http:
                return await asyncio.wait_for(ask(http), PATIENCE)

        return asyncio.run(run())


@pytest.fixture(scope="session")
def long_words() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        pin_ends(patch)
        yield


@pytest.fixture
def make_speaker(load, long_words) -> Iterator[Callable[..., Speaker]]:
    """``make_speaker(options, kind)``: a ready speaker of a tiny model, closed at the end."""
    speakers = []

    def make(options: ServerOptions, kind: str = "custom_voice") -> Speaker:
        speakers.append(ready_speaker(load("tiny", kind), options))
        return speakers[-1]

    yield make
    for one in speakers:
        one.close()


def ready_speaker(model: Model, options: ServerOptions) -> Speaker:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speaker_module, "LINGER_S", 0.2)  # these models serve other tests too
        patch.setattr(speaker_module, "WARM_SECONDS", 0.1)
        speaker = Speaker(Synthesizer(model), options)
        speaker.warm()
    return speaker


@pytest.fixture
def serve(make_speaker) -> Callable[..., Client]:
    """``serve(options)``: a server in this process."""

    def make(options: ServerOptions | None = None, kind: str = "custom_voice") -> Client:
        options = options or ServerOptions()
        speaker = make_speaker(options, kind)
        return Client(App(speaker, options), speaker)

    return make


@pytest.fixture(scope="session")
def client(load, long_words) -> Iterator[Client]:
    """A server in this process with the default options, for all tests."""
    speaker = ready_speaker(load("tiny", "custom_voice"), ServerOptions(rows=8))
    yield Client(App(speaker, ServerOptions()), speaker)
    speaker.close()


@pytest.fixture(scope="session")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that names an alignment head: the words of its lines have times."""
    path = write_checkpoint(tmp_path_factory.mktemp("headed") / "headed", "tiny", "custom_voice")
    (path / "morph.json").write_text('{"alignment": {"layer": 1, "head": 3}}')
    return path


@pytest.fixture(scope="session")
def telling(headed: Path, long_words) -> Iterator[Client]:
    """A server of it, for all tests."""
    speaker = ready_speaker(load_model(headed, LoadOptions("fp32", "sdpa")), ServerOptions())
    yield Client(App(speaker, ServerOptions()), speaker)
    speaker.close()


@contextmanager
def listening(app: Any, **more: Any) -> Iterator[str]:
    """Serve an application on loopback, with more of uvicorn's options; yield its address."""
    # Without its lifespan: that would close the speaker, which other tests use.
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1, lifespan="off", **more)
    server = uvicorn.Server(config)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(64)
        thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()


def asked(text: str = "Hello there.", **more: Any) -> dict[str, Any]:
    return {"input": text, "voice": "ryan", "seed": 3, "sampling": {"max_seconds": 0.5}, **more}


def same_sound(left: bytes, right: bytes) -> bool:
    """Whether samples are equal up to rounding: chunks have other sizes in every run."""
    first, second = (np.frombuffer(one, "<i2").astype(int) for one in (left, right))
    return len(first) == len(second) > 0 and int(np.abs(first - second).max()) <= 2


def row_is_free(speaker: Speaker) -> bool:
    return (speaker.status.speaking, speaker.status.waiting) == (0, 0)

"""A server with several devices in one process: two models on the CPU stand for two GPUs."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import httpx
import pytest
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.options import LoadOptions
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.serve.api.options import ServerOptions
from qwen3_tts_morph.serve.process import ray_server, server
from qwen3_tts_morph.serve.routes import speaker as speaker_module
from qwen3_tts_morph.serve.routes.app import App
from qwen3_tts_morph.serve.routes.speaker import Speaker

from tests.patience import wait_until
from tests.serve.conftest import Client, asked, row_is_free
from tests.serve.process.test_server import read

OPTIONS = ServerOptions(rows=1, waiting=1, devices=("cpu", "cpu"))
ENDLESS = asked("word " * 40, response_format="pcm", sampling={"max_seconds": 100})


@pytest.fixture
def client(load, checkpoint, long_words, monkeypatch) -> Iterator[Client]:
    monkeypatch.setattr(speaker_module, "LINGER_S", 0.2)
    monkeypatch.setattr(speaker_module, "WARM_SECONDS", 0.1)
    second = load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa"))
    speaker = Speaker(Synthesizer(load("tiny", "custom_voice")), OPTIONS, [Synthesizer(second)])
    speaker.warm()
    yield Client(App(speaker, OPTIONS), speaker)
    speaker.close()


def test_requests_are_shared_and_what_is_too_much_is_told(client: Client) -> None:
    status = client.get("/v1/status").json()
    assert (status["rows"], status["most_lines"]) == (2, 4)

    async def main(http: httpx.AsyncClient) -> httpx.Response:
        ask = partial(http.post, "/v1/audio/speech")
        others = []
        for speaking, waiting in ((1, 0), (2, 0), (2, 1), (2, 2)):
            others.append(asyncio.create_task(ask(json={**ENDLESS, "stream": len(others) % 2 == 0})))
            while (client.speaker.status.speaking, client.speaker.status.waiting) != (speaking, waiting):
                await asyncio.sleep(0.01)
        busy = await ask(json=asked())
        assert not any(one.done() for one in others)
        for one in others:
            one.cancel()
        return busy

    busy = client.run(main)
    assert busy.status_code == 429 and int(busy.headers["retry-after"]) > 0
    assert "2 lines wait already" in busy.json()["error"]["message"]
    wait_until(lambda: row_is_free(client.speaker))
    both = [client.post(asked(response_format="wav", stream=False)) for _ in range(2)]
    assert both[0].content == both[1].content and both[0].status_code == 200


def test_the_devices_of_the_command_line() -> None:
    assert read().devices == ("auto",) and read("--device", "cpu").devices == ("cpu",)
    options = read("--devices", "cuda:0", "cuda:1", "--rows", "4", "--waiting", "10")
    assert options.devices == ("cuda:0", "cuda:1") and options.most_lines(8) == 28


def test_each_device_has_the_checkpoint(monkeypatch, checkpoint) -> None:
    options = replace(read("--devices", "cpu", "cpu"), checkpoint=checkpoint("tiny", "custom_voice"))
    speaker = server.load_speaker(options)
    assert speaker.status.rows == 2 * speaker_module.ROWS_ON_CPU
    speaker.close()


def test_ray_has_a_replica_for_each_device_instead(monkeypatch) -> None:
    monkeypatch.setattr(ray_server, "check_ray", lambda: None)
    arguments = server.argparse.ArgumentParser()
    server.add_arguments(arguments)
    with pytest.raises(ValueError, match="--devices is for one process: with --ray leave it out"):
        ray_server.run_ray(arguments.parse_args(["--ray", "--devices", "cpu", "cpu"]))

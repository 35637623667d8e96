"""What a replica under Ray is made of, without Ray."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from qwen3_tts_morph.morph.runtime import collector
from qwen3_tts_morph.serve import ray_server, server
from qwen3_tts_morph.serve import speaker as speaker_module
from qwen3_tts_morph.serve.speaker import Speaker

import pack
from tests.serve.conftest import Client, asked, same_sound


@pytest.fixture
def speakers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Speaker]]:
    """The speakers that replicas load, closed at the end."""
    loaded: list[Speaker] = []
    load = server.load_speaker
    monkeypatch.setattr(server, "load_speaker", lambda options: loaded.append(load(options)) or loaded[-1])
    monkeypatch.setattr(speaker_module, "WARM_SECONDS", 0.1)
    # This process goes on with other tests.
    monkeypatch.setattr(collector, "spare_older_objects", lambda: None)
    yield loaded
    for one in loaded:
        one.close()


def arguments(*words: object) -> dict[str, Any]:
    """A command line as it is sent to a replica: plain values."""
    parser = argparse.ArgumentParser()
    server.add_arguments(parser)
    parsed = vars(parser.parse_args([str(word) for word in ("--ray", *words)]))
    return {name: str(value) if isinstance(value, Path) else value for name, value in parsed.items()}


def test_a_replica_is_the_same_application(
    speakers: list[Speaker], checkpoint: Callable[..., Path], client: Client
) -> None:
    given = arguments(
        "--checkpoint", checkpoint("tiny", "custom_voice"), "--device", "cpu", "--precision", "fp32"
    )
    app = ray_server.builder(str(pack.ROOT), given)()
    replica = Client(app, speakers[0])
    assert replica.get("/ready").json() == {"ready": True}, "it is ready as soon as it is there"
    body = asked(response_format="pcm")
    assert same_sound(replica.post(body).content, client.post(body).content)


def test_what_is_sent_to_a_replica_needs_no_module_of_the_pack() -> None:
    build = ray_server.builder(str(pack.ROOT), arguments())
    assert "<locals>" in build.__qualname__, "Ray would pickle it by the name of its module"
    sent = [cell.cell_contents for cell in build.__closure__]
    assert json.loads(json.dumps(sent)) == sent, "more than plain values"

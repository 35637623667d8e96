"""What a replica under Ray is made of, without Ray."""

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from qwen3_tts_morph.morph.runtime import collector
from qwen3_tts_morph.serve.process import ray_server, server
from qwen3_tts_morph.serve.process.server import OFFERED
from qwen3_tts_morph.serve.routes import speaker as speaker_module
from qwen3_tts_morph.serve.routes.speaker import Speaker

import pack
from tests.morph.adapters import write_adapter
from tests.serve.conftest import Client, asked, same_sound


@pytest.fixture
def speakers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Speaker]]:
    """The speakers that replicas load, closed at the end."""
    loaded: list[Speaker] = []
    load = server.load_speaker
    monkeypatch.setattr(server, "load_speaker", lambda options: loaded.append(load(options)) or loaded[-1])
    monkeypatch.setattr(speaker_module, "WARM_SECONDS", 0.1)
    # This process goes on with other tests.
    monkeypatch.setattr(collector, "freeze_for_good", lambda: None)
    yield loaded
    for one in loaded:
        one.close()


def arguments(*words: object) -> dict[str, Any]:
    """A command line as it is sent to a replica: values of Python's own types."""
    parser = argparse.ArgumentParser()
    server.add_arguments(parser)
    parsed = vars(parser.parse_args([str(word) for word in ("--ray", *words)]))
    return parsed | {"checkpoint": parsed["checkpoint"] and Path(parsed["checkpoint"])}


def test_a_replica_is_the_same_application(speakers, checkpoint, client) -> None:
    given = arguments("--checkpoint", checkpoint("tiny", "custom_voice"), "--device", "cpu", "--precision", "fp32")
    app = ray_server.builder(str(pack.ROOT), given)()
    replica = Client(app, speakers[0])
    assert replica.get("/ready").json() == {"ready": True}, "it is ready as soon as it is there"
    body = asked(response_format="pcm")
    assert same_sound(replica.post(body).content, client.post(body).content)


def test_a_replica_speaks_with_its_adapter_and_says_so(speakers, checkpoint, client, tmp_path) -> None:
    path = checkpoint("tiny", "custom_voice")
    anna = f"{write_adapter(tmp_path / 'anna', path)}:0.5"
    given = arguments("--checkpoint", path, "--device", "cpu", "--precision", "fp32", "--lora", anna)
    replica = Client(ray_server.builder(str(pack.ROOT), given)(), speakers[0])
    statuses = [one.get("/v1/status").json() for one in (client, replica)]
    assert [one["adapters"] for one in statuses] == [[], [{"name": "anna", "strength": 0.5}]]
    assert statuses[0]["fingerprint"] != statuses[1]["fingerprint"]
    body = asked(response_format="pcm")
    assert not same_sound(replica.post(body).content, client.post(body).content)


def test_what_is_sent_to_a_replica_needs_no_module_of_the_pack() -> None:
    build = ray_server.builder(str(pack.ROOT), arguments())
    assert "<locals>" in build.__qualname__, "Ray would pickle it by the name of its module"
    sent = [cell.cell_contents for cell in build.__closure__]
    assert json.loads(json.dumps(sent)) == sent, "more than plain values"


class FakeRay:
    """Stands for Ray: notes how it was begun. ``clusters`` are the addresses where there is one."""

    def __init__(self, *clusters: str):
        self.clusters, self.begun = clusters, list[str]()

    def init(self, address: str, **_: Any) -> None:
        self.begun.append(address)
        if address not in (*self.clusters, "local"):
            raise ConnectionError("there is no cluster")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 8.0, "GPU": 2.0}

    def shutdown(self) -> None:
        self.begun.append("shutdown")


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[FakeRay, dict[str, str]]]:
    """``begin(clusters, haproxy, **variables)``: open and leave ``cluster``; what Ray was told."""

    def make(*clusters: str, haproxy: bool = True, **variables: str) -> tuple[FakeRay, dict[str, str]]:
        ray, environment = FakeRay(*clusters), dict(variables)
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setattr(ray_server, "os", SimpleNamespace(environ=environment))
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: ray if haproxy else None)
        with ray_server.cluster() as gpus:
            assert gpus == 2
        return ray, environment

    return make


def test_a_cluster_that_is_started_has_haproxy_on_free_ports(begin) -> None:
    """Three fixed ones would be taken by a second server of this host."""
    for given in ({}, {"RAY_ADDRESS": "local"}):
        ray, environment = begin(**given)
        assert ray.begun == ([] if given else ["auto"]) + ["local", "shutdown"]
        assert environment[ray_server.HAPROXY] == "1" and ray_server.routing(9.0) == {}
        ports = [int(environment[name]) for name in ray_server.HAPROXY_PORTS]
        assert len(set(ports)) == 3 and set(ports) <= set(OFFERED)


def test_what_the_environment_says_of_haproxy_is_left(begin) -> None:
    _, environment = begin(**{ray_server.HAPROXY: "0", ray_server.HAPROXY_PORTS[0]: "9101"})
    assert environment[ray_server.HAPROXY] == "0" and environment[ray_server.HAPROXY_PORTS[0]] == "9101"


def test_without_haproxy_ray_s_own_proxy_serves(begin) -> None:
    assert ray_server.HAPROXY not in begin(haproxy=False)[1]


@pytest.mark.parametrize("variables", [{}, {"RAY_ADDRESS": "first:6379"}])
def test_a_cluster_that_is_there_is_joined_as_it_is(begin, variables: dict[str, str]) -> None:
    """Its processes have their environment already: with another one here, Ray's halves would not fit together."""
    address = variables.get("RAY_ADDRESS", "auto")
    ray, environment = begin(address, **variables)
    assert ray.begun == [address, "shutdown"] and ray_server.HAPROXY not in environment


def test_an_address_without_a_cluster_is_no_reason_to_start_one(begin) -> None:
    with pytest.raises(ConnectionError):
        begin(RAY_ADDRESS="gone:6379")

"""What a server does before its first request: with a GPU's plan, on a CPU."""

import argparse
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.decode.rows import NOTHING_AHEAD, Ahead
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.file import save_voice
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.api.options import ServerOptions
from qwen3_tts_morph.serve.process import server
from qwen3_tts_morph.serve.routes import speaker as speaker_module
from qwen3_tts_morph.serve.routes.metrics import Metrics
from qwen3_tts_morph.serve.routes.speaker import Speaker

from tests.serve.routes.test_routes import value_of


@pytest.fixture
def spoken(monkeypatch) -> list[tuple[int, str, str]]:
    """Of each line that is spoken its SEQ_GROUPS, voice and layout."""
    noted: list[tuple[int, str, str]] = []
    speak = Batch.speak

    def note(batch, line, options, delivery):
        noted.append((options.seq_groups, line.voice.name, line.layout))
        return speak(batch, line, options, delivery)

    monkeypatch.setattr(Batch, "speak", note)
    monkeypatch.setattr(speaker_module, "LINGER_S", 0.2)
    monkeypatch.setattr(speaker_module, "WARM_SECONDS", 0.1)
    return noted


def test_every_setting_and_voice_of_the_server_is_spoken_with_before_it_is_ready(
    load, tmp_path, monkeypatch, spoken, caplog
):
    monkeypatch.setattr(speaker_module, "ahead_of", lambda model, rows: Ahead(rows, 1024))
    monkeypatch.setattr(speaker_module, "WARM_VOICES", 2)
    model = load("tiny", "base")
    for name in ("ann", "bob", "cid"):
        save_voice(Voice("x_vector", model.size, name, torch.ones(model.width)), tmp_path / f"{name}.safetensors")
    options = ServerOptions(seq_groups=5, warm_groups=(3, 5), rows=3, waiting=2, voices=tmp_path)
    speaker = Speaker(Synthesizer(model), options)
    try:
        with caplog.at_level(logging.INFO):
            speaker.warm()
            assert speaker.is_ready
            heard = (5, "ann", "sentence")
            assert spoken == [(3, "ann", "sentence"), heard, (5, "ann", "sentence"), (5, "bob", "sentence")]
            spoken.clear()
            speaker.prepare_rest()
    finally:
        speaker.close()
    complete = (5, "ann", "sentence")
    assert spoken == [complete, (5, "ann", "token"), (5, "ann", "sentence")], "a row is left, at most two wait"
    said = [record.getMessage() for record in caplog.records]
    [ready] = [one for one in said if one.startswith("ready: ")]
    assert "3 rows of 1024 positions" in ready and "0 of 0 graphs captured" in ready
    assert said[-1].startswith("all is prepared: ")


def test_the_rest_is_prepared_beside_requests_and_metrics_say_how_far_it_is(client):
    first, done = client.speaker.warm_ups[0], []
    voice = client.speaker.voices.entries()[0]["name"]
    ask = {
        "input": "Hello.",
        "voice": voice,
        "seed": 3,
        "sampling": {"max_seconds": 0.5},
    }  # no take runs to its cap

    def capture(key: str) -> None:
        done.append(key)
        if len(done) == 1:
            asked.append(threads.submit(client.post, ask))

    class Graphs:
        def lacks(self, key: str) -> bool:
            return key not in done

    graphs, asked = Graphs(), []
    for key in ("a", "b", "c"):
        first.plan(0, graphs, key, partial(capture, key))
    assert value_of(client.get("/metrics").text, "morph_tts_captures_planned") == 3
    with ThreadPoolExecutor() as threads:
        client.speaker.prepare_rest()
        assert asked[0].result().status_code == 200
    assert done == ["a", "b", "c"]
    assert value_of(client.get("/metrics").text, "morph_tts_captures_planned") == 0


def test_on_a_cpu_one_line_is_spoken(load, spoken):
    model = load("tiny", "custom_voice")
    assert speaker_module.ahead_of(model, 8) is NOTHING_AHEAD
    speaker = Speaker(Synthesizer(model), ServerOptions())
    try:
        speaker.warm()
    finally:
        speaker.close()
    assert len(spoken) == 1


def test_metrics_tell_of_slow_moments(client, monkeypatch):
    text = client.get("/metrics").text
    assert value_of(text, "morph_tts_late_captures_total") == 0
    assert value_of(text, "morph_tts_collections_total") >= 0
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 7)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda _: {"segment.all.allocated": 8})
    monkeypatch.setattr(torch.cuda, "host_memory_stats", lambda: {"num_host_alloc": 9}, raising=False)
    speaker, pauses = client.speaker, Mock(count=1, seconds=2.0, longest=3.0)
    gpus = [torch.device("cuda", 0), torch.device("cuda", 1)]
    text = Metrics(Mock(status=speaker.status, devices=gpus, warm_ups=[], pauses=pauses)).text().decode()
    assert value_of(text, "morph_tts_gpu_memory_bytes") == 14
    assert value_of(text, "morph_tts_gpu_allocations_total") == 16
    assert value_of(text, "morph_tts_pinned_allocations_total") == 9
    assert value_of(text, "morph_tts_collection_longest_seconds") == 3


def test_a_setting_that_cannot_be_prepared_is_refused():
    with pytest.raises(ValueError, match="SEQ_GROUPS is 16"):
        ServerOptions(warm_groups=(15, 16))


def test_the_command_line_names_settings_that_are_prepared():
    parser = argparse.ArgumentParser()
    server.add_arguments(parser)
    assert server.read_options(parser.parse_args(["--warm-groups", "15", "9"])).warm_groups == (15, 9)
    assert server.read_options(parser.parse_args([])).warm_groups == ()

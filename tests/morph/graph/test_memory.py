"""What the graph engine holds and for how long: weights, caches and graphs, beside a model that may be moved."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.rows import RowPlan
from qwen3_tts_morph.morph.frame.weights import WeightViews
from qwen3_tts_morph.morph.graph import engine as graph
from qwen3_tts_morph.morph.graph.pool import DecoderPool
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling
from torch.multiprocessing.reductions import StorageWeakRef

from tests.morph.decoding import (
    GREEDY,
    SEEDS,
    GraphDecoder,
    assert_equal,
    decode_graphs,
    guards_of,
    line_requests,
    prompts_of,
)
from tests.morph.held import note_buffers
from tests.morph.model.moving import move
from tests.morph.recorded import Recordings


@pytest.fixture
def fresh(checkpoint):
    """Return a separate model, whose weights may be moved."""
    return load_model(checkpoint("tiny", "custom_voice"), LoadOptions("fp32", "sdpa"))


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
def test_a_model_that_was_moved_in_between_is_used_on_its_current_device(fresh, monkeypatch, recorded):
    if recorded:
        monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    held, prompts, engine = note_buffers(monkeypatch), prompts_of(fresh), GraphDecoder(4)
    wanted = engine.decode(fresh, line_requests(prompts, seeds=SEEDS), GenerateOptions(5, Sampling()))
    fused = StorageWeakRef(fresh.talker.model.layers[0].mlp.gate_proj.weight.untyped_storage())
    move(fresh.module)
    assert_equal(engine.decode(fresh, line_requests(prompts, seeds=SEEDS), GenerateOptions(5, Sampling())), wanted)
    assert [one.is_released for one in held] == [True, False], "the old caches are held"
    assert fused.expired(), "the engine holds weights of a model that has left"
    with torch.no_grad():
        for parameter in fresh.talker.parameters():
            parameter.mul_(1.5)
    changed = engine.decode(fresh, line_requests(prompts, seeds=SEEDS), GenerateOptions(5, Sampling()))
    assert not torch.equal(changed[0].codes[:2], wanted[0].codes[:2]), "old weights were used"


def test_free_releases_caches_and_graphs(load, monkeypatch):
    model, held = load("tiny", "custom_voice"), note_buffers(monkeypatch)
    prompts, engines = prompts_of(model), DecoderPool()

    def decode():
        requests, options = line_requests(prompts, seeds=SEEDS), GenerateOptions(5, Sampling(), 8)
        plan = RowPlan.of_lines(requests, options.batch_size)
        return decode_graphs(engines.decoder(model, plan), model, requests, options)

    first = decode()
    workspace = held[0].buffers().workspace.empty("qkv", (1, 8), torch.float32)
    scratch = StorageWeakRef(workspace.untyped_storage())
    del workspace
    assert not held[0].is_released and not scratch.expired()
    engines.free()
    assert held[0].is_released and scratch.expired()
    assert_equal(decode(), first)


def test_weights_may_be_assumed_to_be_where_they_were_and_are_looked_at_later(fresh):
    kept = WeightViews()
    first = kept.assume(fresh)
    assert kept.confirm(), "they have just been viewed"
    assert kept.assume(fresh) is first and kept.confirm()
    move(fresh.module)
    assert kept.assume(fresh) is first and not kept.confirm()
    assert kept.of(fresh) is not first and kept.confirm()


def test_a_line_begins_again_where_the_model_was_moved(fresh, monkeypatch):
    """Its first frame is launched before the addresses are looked at."""
    monkeypatch.setattr(graph, "CapturedGraphs", Recordings)
    prompts, engine = prompts_of(fresh), GraphDecoder(len(SEEDS))
    assumed = []

    def decode():
        requests = [replace(request, is_streamed=True) for request in line_requests(prompts, seeds=SEEDS)]
        return engine.decode(fresh, requests, GenerateOptions(5, Sampling()))

    wanted = decode()
    ask = WeightViews.confirm
    monkeypatch.setattr(WeightViews, "confirm", lambda views: assumed.append(ask(views)) or assumed[-1])
    assert_equal(decode(), wanted)
    assert all(assumed)
    move(fresh.module)
    with torch.no_grad():
        for parameter in fresh.talker.parameters():
            parameter.mul_(1.5)
    changed = decode()
    assert assumed.count(False) == 1
    engine.free()
    assert_equal(changed, decode())


def test_a_batch_keeps_its_decoder_and_single_lines_have_another():
    engines, decoders = DecoderPool(), []

    def rows(count: int, batch_size: int = 16, device: str = "cuda") -> int:
        model = SimpleNamespace(device=torch.device(device))
        decoders.append(engines.decoder(model, RowPlan.of_lines([None] * count, batch_size)))
        return decoders[-1].batch

    assert [rows(count) for count in (3, 2, 1, 5, 3)] == [4, 4, 1, 8, 8]
    assert [rows(18), rows(5), rows(2), rows(18, 6), rows(18, 1)] == [16, 16, 2, 6, 1]
    assert [rows(count, 512) for count in (65, 128, 100, 60, 300, 512, 342, 341)] == [
        128, 128, 128, 64, 320, 512, 512, 384
    ]  # fmt: skip
    assert decoders[0] is decoders[1] and decoders[3] is decoders[4] and decoders[0] is not decoders[2]
    assert [rows(count, 6, "cpu") for count in (3, 2, 1, 5, 18)] == [3, 2, 1, 5, 6], "no row is left unused"


def test_an_overflow_in_fp16_is_reported_and_does_not_affect_the_next_line(fresh, monkeypatch):
    fresh.module.half()
    held = note_buffers(monkeypatch)
    prompts, engine = prompts_of(fresh), GraphDecoder()
    wanted = engine.decode(fresh, line_requests(prompts[:1], guards_of(prompts[:1]), [1]), GenerateOptions(5, GREEDY))
    with torch.inference_mode():
        held[-1].buffers().cache.keys.fill_(torch.nan)  # as an idle row's may be
    assert_equal(
        engine.decode(fresh, line_requests(prompts[:1], guards_of(prompts[:1]), [1]), GenerateOptions(5, GREEDY)),
        wanted,
    )
    head = fresh.talker.codec_head.weight
    kept = head.data.clone()
    head.data.fill_(6e4)
    with pytest.raises(ValueError, match="overflow in fp16: load it with precision auto"):
        engine.decode(fresh, line_requests(prompts[:1], guards_of(prompts[:1]), [1]), GenerateOptions(5, GREEDY))
    head.data.copy_(kept)
    assert_equal(
        engine.decode(fresh, line_requests(prompts[:1], guards_of(prompts[:1]), [1]), GenerateOptions(5, GREEDY)),
        wanted,
    )

"""One frame over static buffers; tests/morph/graph compares whole lines with the eager engine, and replays them."""

from dataclasses import replace

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.frame.buffers import Buffers, PrefillBatch
from qwen3_tts_morph.morph.frame.step import decode_frame, prefill
from qwen3_tts_morph.morph.frame.weights import Weights
from qwen3_tts_morph.morph.options import LoadOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.voice.prompt import Prompt

LENGTHS, TRAILING = (9, 4, 1), (2, 5, 1)
GREEDY = Sampling(TokenSampling(do_sample=False), TokenSampling(do_sample=False))


def prompts_of(model, rows=range(3)) -> list[Prompt]:
    def noise(count: int, seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(count, model.width, generator=generator).to(model.dtype)

    return [Prompt(noise(LENGTHS[row], row), noise(TRAILING[row], 9 + row), noise(1, 99), 1) for row in rows]


def started(model, sampling: Sampling, rows=range(3), batch: int | None = None, context: int = 64):
    """Return weights and buffers with some lines prefilled, line ``row`` with seed ``row``."""
    weights, prompts = Weights.of(model), prompts_of(model, rows)
    config, batch = model.config.talker_config, batch or len(prompts)
    buffers = Buffers.allocate(config, weights.talker, weights.predictor, batch, context)
    buffers.put(sampling)
    arrive(weights, buffers, prompts, range(len(prompts)), rows)
    return weights, buffers


def arrive(weights, buffers, prompts, rows, seeds) -> None:
    buffers.put_texts(list(rows), prompts)
    longest = max(len(prompt.embeds) for prompt in prompts)
    arrivals = PrefillBatch.allocate(len(prompts), longest, buffers.state.hidden)
    arrivals.put(list(rows), prompts, list(seeds))
    prefill(weights, buffers, arrivals)


def frames(weights, buffers, count: int, seq_groups: int = 15, window: int = 64) -> torch.Tensor:
    """Return the reports of the next frames, ``[B, count, 17]``."""
    reports = []
    for _ in range(count):
        decode_frame(weights, buffers, seq_groups, window)
        reports.append(buffers.state.report.clone())
    return torch.stack(reports, dim=1)


@torch.inference_mode()
def test_every_group_and_frame_has_different_noise(load):
    """With flat logits the noise alone decides the code: equal noise would show as equal codes."""
    model = load("tiny", "base")
    weights, buffers = started(model, Sampling(TokenSampling(True, 1.0, 0), TokenSampling(True, 1.0, 0), 1.0))
    kept = weights.heads.clone()
    weights.heads.zero_()
    try:
        codes = frames(weights, buffers, 40)[0, :, 1:16]
    finally:
        weights.heads.copy_(kept)
    assert len({tuple(row) for row in codes.tolist()}) == 40
    assert len({tuple(column) for column in codes.T.tolist()}) == 15
    counts = codes.flatten().bincount(minlength=buffers.codebook).double()
    expected = codes.numel() / buffers.codebook
    assert float(((counts - expected) ** 2 / expected).sum()) < 63 + 6 * 126**0.5


@torch.inference_mode()
def test_a_line_beyond_the_window_disturbs_no_other(load):
    model = load("tiny", "base")
    wanted = frames(*started(model, Sampling()), 12)
    weights, buffers = started(model, Sampling())
    buffers.state.positions[0] = 1000
    buffers.state.steps[0] = 5000
    seen = frames(weights, buffers, 12)
    assert torch.equal(seen[1:], wanted[1:])
    smaller = frames(*started(model, Sampling()), 12, window=24)
    assert torch.equal(smaller, wanted), "a window that covers all positions is enough"


@torch.inference_mode()
def test_a_frame_needs_nothing_from_the_host(checkpoint):
    """On the meta device, which has no data: a read would fail, and so would a tensor created on the CPU."""
    model = load_model(checkpoint("tiny-1.7B", "base"), LoadOptions("fp32", "sdpa"))
    with torch.inference_mode(False):
        model.module.to("meta")
    weights = Weights.of(model)
    buffers = Buffers.allocate(model.config.talker_config, weights.talker, weights.predictor, 2, 64)
    decode_frame(weights, buffers, 5, 64)
    prefill(weights, buffers, PrefillBatch.allocate(2, 8, buffers.state.hidden))


@torch.inference_mode()
def test_each_line_ends_no_earlier_than_its_own_minimum(load, monkeypatch):
    """EOS is sampled as soon as it is allowed; the next line in a row has its own minimum."""
    model = load("tiny", "base")
    weights, buffers = started(model, GREEDY)
    eos = int(buffers.is_eos.nonzero())

    def sample(scores, *_):
        first_group = scores.shape[-1] > eos
        return scores[:, eos].isfinite() * eos if first_group else scores.argmax(-1)

    monkeypatch.setattr("qwen3_tts_morph.morph.frame.step.sample_static", sample)
    first, second, third = prompts_of(model)
    for minimums in ((5, 2, 3), (2, 6, 2)):
        prompts = [replace(one, min_frames=least) for one, least in zip((first, second, third), minimums, strict=True)]
        arrive(weights, buffers, prompts, range(3), range(3))
        codes = frames(weights, buffers, 7, seq_groups=1)[:, :, 0]
        assert [row.tolist().index(eos) for row in codes] == list(minimums)


@torch.inference_mode()
def test_a_longer_trailing_text_than_the_context_is_refused(load):
    model = load("tiny", "base")
    with pytest.raises(ValueError, match="trailing text tokens"):
        started(model, GREEDY, rows=(1,), context=5)

"""Sampling on the device: the tokens of ``sample_static`` with the same noise, for all settings."""

import pytest
import torch

pytest.importorskip("triton", reason="not run: the kernels need triton")

import triton
import triton.language as tl
from qwen3_tts_morph.morph.decode.rows import REPORT_WIDTH
from qwen3_tts_morph.morph.frame.sampling import GROUPS, SamplingTensors, gumbel_noise, line_keys, sample_static
from qwen3_tts_morph.morph.frame.sampling import random_words as torch_words
from qwen3_tts_morph.morph.kernels.sampling import divide, gumbel, random_words, sample_codes, sample_first
from qwen3_tts_morph.morph.options import TokenSampling

from tests.morph.frame.sampler_cases import SETTINGS


@triton.jit
def write_noise(keys, counter, words, noise, WIDTH: tl.constexpr):
    tokens = tl.arange(0, WIDTH)
    sampled = random_words(keys, tl.load(counter), tokens)
    tl.store(words + tokens, sampled.to(tl.int64))
    tl.store(noise + tokens, gumbel(sampled))


@pytest.mark.parametrize("seed", [0, 1, 2**63 + 12345, -7])
def test_noise_equals_that_of_torch(device, seed):
    keys = line_keys([seed]).to(device)
    for number in (0, 1, 17, 16 * 8192 + 15):
        counter = torch.tensor([[number]], device=device)
        words = torch.zeros(256, dtype=torch.int64, device=device)
        noise = torch.zeros(256, device=device)
        write_noise[(1,)](keys, counter, words, noise, WIDTH=256)
        assert torch.equal(words, torch_words(keys, counter, 256)[0, 0])
        assert torch.allclose(noise, gumbel_noise(keys, counter, 256)[0, 0], rtol=1e-5, atol=1e-6)


@triton.jit
def write_quotients(values, divisor, out, WIDTH: tl.constexpr):
    index = tl.arange(0, WIDTH)
    tl.store(out + index, divide(tl.load(values + index), tl.load(divisor)))


@pytest.mark.parametrize("divisor", [0.9, 1.0, 0.05, 1.7, 1e-3])
def test_quotients_equal_those_of_a_division(device, divisor):
    """Exactly on a GPU, which has a fused multiply-add; the interpreter rounds in between."""
    values = logits("plain", 1024).to(device)
    values[:4] = torch.tensor([torch.inf, -torch.inf, 0.0, 3e38], device=device)
    out = torch.zeros_like(values)
    divisors = torch.tensor([divisor], device=device)
    write_quotients[(1,)](values, divisors, out, WIDTH=1024)
    wanted = values / divisors
    if device.type == "cuda":
        assert torch.equal(out, wanted)
    assert torch.allclose(out, wanted, rtol=2e-7, atol=0.0)


def tensors(settings: list[TokenSampling], vocab: int, device) -> SamplingTensors:
    rows = [SamplingTensors.allocate(1, device) for _ in settings]
    for row, one in zip(rows, settings, strict=True):
        row.put(one, vocab)
    return SamplingTensors(*(torch.cat(column) for column in zip(*(vars(row).values() for row in rows), strict=True)))


def logits(kind: str, *shape: int, seed: int = 3) -> torch.Tensor:
    made = 4 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made.round() if kind == "ties" else made


@pytest.mark.parametrize("kind", ["plain", "ties"])
@pytest.mark.parametrize("vocab, groups", [pytest.param(64, 1, marks=pytest.mark.slow), (100, 3), (1, 1)])
def test_codes_equal_those_of_the_torch_sampler(device, vocab, groups, kind):
    """On ties, too: both order equal tokens as a stable sort does."""
    lines = len(SETTINGS)
    keys, settings = line_keys(range(lines)).to(device), tensors(SETTINGS, vocab, device)
    for seed in range(2):
        scores = logits(kind, lines, groups, vocab, seed=seed).to(device)
        steps = torch.arange(lines, device=device) + 5 * seed
        report = torch.full((lines, REPORT_WIDTH), -1, device=device)
        sample_codes[(lines, groups)](
            scores, keys, steps, settings.temperatures, settings.cutoffs, settings.shares, settings.scales, report, 2,
            V=vocab, CODES=GROUPS, PADDED=triton.next_power_of_2(vocab), PDL=False,
        )  # fmt: skip
        counters = steps[:, None] * GROUPS + 2 + torch.arange(groups, device=device)
        wanted = sample_static(scores, settings, gumbel_noise(keys, counters, vocab))
        assert torch.equal(report[:, 2 : 2 + groups], wanted)
        report[:, 2 : 2 + groups] = -1
        assert bool((report == -1).all()), "nothing else is written"


def test_logits_that_are_not_finite_are_flagged_and_the_token_stays_in_the_vocabulary(device):
    settings = tensors([TokenSampling(top_p=0.5)] * 3, 100, device)
    scores = logits("plain", 3, 1, 100).to(device)
    scores[0, 0, 7] = torch.inf
    scores[1] = torch.nan
    report = torch.zeros(3, REPORT_WIDTH, dtype=torch.int64, device=device)
    sample_codes[(3, 1)](
        scores, line_keys(range(3)).to(device), torch.zeros(3, dtype=torch.int64, device=device), settings.temperatures,
        settings.cutoffs, settings.shares, settings.scales, report, 1,
        V=100, CODES=GROUPS, PADDED=128, PDL=False,
    )  # fmt: skip
    assert report[:, GROUPS].tolist() == [1, 1, 0]
    assert bool(((report[:, 1] >= 0) & (report[:, 1] < 100)).all())


def test_group_0_logits_that_are_not_finite_are_flagged_and_the_token_stays_in_the_vocabulary(device):
    """NaN at a suppressed token counts: it means a damaged weight."""
    settings, vocab = tensors([TokenSampling(top_p=0.5)] * 4, 100, device), 100
    scores = logits("plain", 4, vocab).to(device)
    scores[0, 7], scores[1], scores[2, 90] = torch.inf, torch.nan, -torch.tensor(torch.nan)
    report = torch.zeros(4, REPORT_WIDTH, dtype=torch.int64, device=device)
    integers = [torch.zeros(4, dtype=torch.int64, device=device) for _ in range(4)]
    steps, minimums, positions, sampled = integers
    seen = torch.zeros(4, vocab, dtype=torch.bool, device=device)
    suppressed = torch.arange(vocab, device=device) >= 70
    sample_first[(4,)](
        scores, line_keys(range(4)).to(device), steps, minimums, positions, settings.temperatures, settings.cutoffs,
        settings.shares, settings.scales, torch.ones(4, device=device), seen, suppressed, torch.zeros_like(suppressed),
        sampled, report, V=vocab, CODES=GROUPS, PADDED=128, PDL=False,
    )  # fmt: skip
    assert report[:, GROUPS].tolist() == [1, 1, 1, 0]
    assert bool(((sampled >= 0) & (sampled < vocab)).all())


@pytest.mark.parametrize("kind", ["plain", "ties"])
def test_group_0_is_penalized_suppressed_and_counted(device, kind):
    vocab, lines = 100, len(SETTINGS)
    keys, settings = line_keys(range(lines)).to(device), tensors(SETTINGS, vocab, device)
    suppressed = (torch.arange(vocab, device=device) >= 70) & (torch.arange(vocab, device=device) != 80)
    is_eos = torch.arange(vocab, device=device) == 80
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        scores = logits(kind, lines, vocab, seed=seed).to(device)
        scores[:, 80] += 6
        seen = (torch.rand(lines, vocab, generator=generator) < 0.3).to(device)
        steps = torch.arange(lines, device=device) % 4
        minimums = 2 + torch.arange(lines, device=device) % 3
        positions, tokens = steps + 30, steps + 50
        penalties = (1 + torch.rand(lines, generator=generator)).to(device)
        report = torch.full((lines, REPORT_WIDTH), -1, device=device)
        before = seen.clone(), steps.clone(), positions.clone(), tokens.clone()
        sample_first[(lines,)](
            scores, keys, steps, minimums, positions, settings.temperatures, settings.cutoffs, settings.shares,
            settings.scales, penalties, seen, suppressed, is_eos, tokens, report,
            V=vocab, CODES=GROUPS, PADDED=128, PDL=False,
        )  # fmt: skip
        was_seen, step, position, old = before
        column = penalties[:, None]
        wanted = torch.where(was_seen, torch.where(scores < 0, scores * column, scores / column), scores)
        early = ((step + 1) < minimums)[:, None] & is_eos
        wanted = wanted.masked_fill(suppressed | early, -torch.inf)
        noise = gumbel_noise(keys, ((step + 1) * GROUPS)[:, None], vocab)[:, 0]
        sampled = sample_static(wanted, settings, noise)
        assert torch.equal(tokens, sampled)
        assert torch.equal(steps, step + 1) and torch.equal(positions, position + 1)
        assert torch.equal(seen, was_seen.scatter(1, sampled[:, None], True))
        assert torch.equal(report[:, 0], old) and bool((report[:, 1:] == -1).all())

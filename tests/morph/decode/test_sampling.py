"""Sampling against transformers' own processors, in its own order."""

import pytest
import torch
from qwen3_tts_morph.morph.decode.sampling import (
    filter_logits,
    line_stream,
    penalize_repetition,
    sample_tokens,
)
from qwen3_tts_morph.morph.options import TokenSampling
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tests.morph.frame.sampler_cases import SETTINGS, VOCAB, logits

CPU = torch.device("cpu")


def hf_scores(scores: torch.Tensor, sampling: TokenSampling, ids: torch.Tensor, penalty: float) -> torch.Tensor:
    processors = [RepetitionPenaltyLogitsProcessor(penalty)] if penalty != 1.0 else []
    if sampling.temperature != 1.0:
        processors.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k:
        processors.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1.0:
        processors.append(TopPLogitsWarper(sampling.top_p))
    for processor in processors:
        scores = processor(ids, scores)
    return scores


@pytest.mark.parametrize("penalty", [1.0, 1.05, 1.6, 0.7])
@pytest.mark.parametrize("kind", ["fp32", "bf16", "ties"])
@pytest.mark.parametrize("sampling", SETTINGS[:7], ids=str)
def test_scores_and_samples_equal_transformers_bit_for_bit(sampling, kind, penalty):
    raw = logits(kind, 6)
    ids = torch.randint(VOCAB, (6, 9), generator=torch.Generator().manual_seed(1))
    seen = torch.zeros(6, VOCAB, dtype=torch.bool).scatter_(1, ids, True)
    theirs = hf_scores(raw.float(), sampling, ids, penalty)
    penalized = penalize_repetition(raw.float(), seen, penalty)
    assert torch.equal(filter_logits(penalized, sampling), theirs)
    sampled = sample_tokens(penalized, sampling, torch.Generator().manual_seed(5))
    wanted = torch.multinomial(theirs.softmax(-1), 1, generator=torch.Generator().manual_seed(5)).squeeze(1)
    assert torch.equal(sampled, wanted)


@pytest.mark.parametrize("top_p", [0.25, 0.5, 0.75])
def test_a_top_p_that_is_met_exactly_is_cut_where_transformers_cuts_it(top_p):
    """Four equal tokens: their cumulative probabilities are exactly 1/4, 1/2 and 3/4."""
    scores, sampling = torch.zeros(1, 4), TokenSampling(temperature=1.0, top_k=0, top_p=top_p)
    theirs = hf_scores(scores, sampling, torch.zeros(1, 1, dtype=torch.long), 1.0)
    assert theirs.isfinite().sum() == 4 * top_p
    assert torch.equal(filter_logits(scores, sampling), theirs)


@pytest.mark.parametrize("sampling", SETTINGS[:7], ids=str)
def test_bf16_logits_are_sampled_in_float32(sampling):
    raw = logits("bf16", 40)
    sampled = sample_tokens(raw, sampling, torch.Generator().manual_seed(5))
    assert torch.equal(sampled, sample_tokens(raw.float(), sampling, torch.Generator().manual_seed(5)))


def test_without_a_stream_torchs_own_generator_is_used_as_upstream():
    raw = logits("fp32", 7)
    torch.manual_seed(11)
    sampled = sample_tokens(raw, TokenSampling(), None)
    state = torch.get_rng_state()
    torch.manual_seed(11)
    probabilities = hf_scores(raw, TokenSampling(), torch.zeros(7, 1, dtype=torch.long), 1.0).softmax(-1)
    assert torch.equal(sampled, torch.multinomial(probabilities, 1).squeeze(1))
    assert torch.equal(state, torch.get_rng_state())


def test_crossbar_samples_with_one_stream_equal_one_multinomial_over_all_groups():
    raw = logits("fp32", 3, 10)
    sampled = sample_tokens(raw, TokenSampling(), torch.Generator().manual_seed(8))
    flat = hf_scores(raw.reshape(30, VOCAB), TokenSampling(), torch.zeros(30, 1, dtype=torch.long), 1.0)
    wanted = torch.multinomial(flat.softmax(-1), 1, generator=torch.Generator().manual_seed(8))
    assert torch.equal(sampled, wanted.reshape(3, 10))


@pytest.mark.parametrize("shape", [(5,), (5, 10)])
def test_greedy_takes_the_most_probable_and_uses_no_randomness(shape):
    raw = logits("bf16", *shape)
    stream = torch.Generator().manual_seed(1)
    before = stream.get_state()
    sampled = sample_tokens(raw, TokenSampling(do_sample=False, top_k=1, temperature=0.1), stream)
    assert torch.equal(sampled, raw.float().argmax(-1))
    assert torch.equal(stream.get_state(), before)


def test_an_overflow_in_fp16_is_reported_before_anything_is_sampled():
    """Without the check: "probability tensor contains either inf, nan"."""
    logits = torch.full((1, 8), torch.nan, dtype=torch.float16)
    with pytest.raises(ValueError, match="overflow in fp16: load it with precision auto"):
        sample_tokens(logits, TokenSampling(), None)


def test_seeds_of_64_bits_have_takes_of_their_own() -> None:
    seeds = [5, 5 + 2**32, 5 + 2**33, 5 + 2**63, 6 + 2**63, 2**64 - 1, 2**63 - 1, 2**32 - 1]
    drawn = [torch.rand(4, generator=line_stream(seed, CPU)).tolist() for seed in seeds]
    assert len({*map(tuple, drawn)}) == len(seeds)
    for seed in (5, 2**32 - 1):
        assert drawn[seeds.index(seed)] == torch.rand(4, generator=torch.Generator().manual_seed(seed)).tolist()

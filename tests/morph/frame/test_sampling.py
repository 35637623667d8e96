"""The tensor sampler against ``decode/sampling.py`` with the same noise; every line has its own settings."""

import pytest
import torch
from qwen3_tts_morph.morph.decode.sampling import filter_logits
from qwen3_tts_morph.morph.frame.sampling import SamplingTensors, gumbel_noise, line_keys, sample_static
from qwen3_tts_morph.morph.options import TokenSampling

from tests.morph.frame.sampler_cases import SETTINGS, VOCAB, logits


def tensors(per_line: list[TokenSampling], vocab: int = VOCAB) -> SamplingTensors:
    """Return one line per setting."""
    rows = []
    for settings in per_line:
        rows.append(SamplingTensors.allocate(1, torch.device("cpu")))
        rows[-1].put(settings, vocab)
    return SamplingTensors(*(torch.cat(column) for column in zip(*(vars(row).values() for row in rows), strict=True)))


def plain(scores: torch.Tensor, settings: TokenSampling, noise: torch.Tensor) -> torch.Tensor:
    return (filter_logits(scores, settings) + noise if settings.do_sample else scores).argmax(-1)


@pytest.mark.parametrize("kind", ["fp32", "bf16", "ties"])
@pytest.mark.parametrize("groups", [None, 10], ids=["one group", "crossbar"])
def test_each_line_draws_by_its_own_settings_as_the_eager_sampler(kind, groups):
    keys = line_keys(range(len(SETTINGS)))
    for round_number in range(50):
        shape = (len(SETTINGS),) if groups is None else (len(SETTINGS), groups)
        scores = logits(kind, *shape).float()
        counters = round_number * 16 + torch.arange(groups or 1).expand(len(SETTINGS), -1)
        noise = gumbel_noise(keys, counters, VOCAB).view(scores.shape)
        sampled = sample_static(scores, tensors(SETTINGS), noise)
        assert sampled.dtype == torch.int64
        for row, settings in enumerate(SETTINGS):
            if kind == "ties" and settings.top_p < 1:
                continue  # which of equal tokens stay is up to the sort; how many, the next test counts
            assert torch.equal(sampled[row], plain(scores[row], settings, noise[row])), settings


@pytest.mark.parametrize("top_p", [0.25, 0.5, 0.75])
def test_a_share_that_is_met_exactly_is_cut_where_transformers_cuts_it(top_p):
    """Four equal tokens: how many of them stay shows in what noise can pick."""
    settings, scores = TokenSampling(temperature=1.0, top_k=0, top_p=top_p), torch.zeros(1, 4)
    picked = [
        int(sample_static(scores, tensors([settings], 4), 10 * torch.eye(4)[token : token + 1])) == token
        for token in range(4)
    ]
    assert sum(picked) == filter_logits(scores, settings).isfinite().sum() == 4 * top_p

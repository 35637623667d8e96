"""The tensor sampler against ``sampling.py`` with the same noise, every line with settings of its own."""

from __future__ import annotations

import pytest
import torch
from qwen3_tts_morph.morph.noise import gumbel_noise, line_keys
from qwen3_tts_morph.morph.options import Draw
from qwen3_tts_morph.morph.sampling import filter_logits
from qwen3_tts_morph.morph.static_sampling import DrawTensors, draw_static

VOCAB = 64
DRAWS = [
    Draw(),
    Draw(top_p=0.8),
    Draw(temperature=0.3, top_k=0, top_p=0.5),
    Draw(temperature=1.0, top_k=5),
    Draw(temperature=1.7, top_k=20, top_p=0.9),
    Draw(temperature=1.0, top_k=0),
    Draw(top_k=1000, top_p=0.999),
    Draw(temperature=1.0, top_k=1),
    Draw(temperature=1.0, top_k=0, top_p=1e-6),
    Draw(do_sample=False, temperature=0.2, top_k=3, top_p=0.4),
]


def tensors(draws: list[Draw], vocab: int = VOCAB) -> DrawTensors:
    made = DrawTensors.allocate(len(draws), torch.device("cpu"))
    for row, draw in enumerate(draws):
        made.lines(slice(row, row + 1)).put(draw, vocab)
    return made


def logits(kind: str, *shape: int) -> torch.Tensor:
    made = 4 * torch.randn(*shape, VOCAB, generator=torch.Generator().manual_seed(3))
    if kind == "ties":
        return made.round()
    return made.to(torch.bfloat16).float() if kind == "bf16" else made


def plain(scores: torch.Tensor, draw: Draw, noise: torch.Tensor) -> torch.Tensor:
    return (filter_logits(scores, draw) + noise if draw.do_sample else scores).argmax(-1)


@pytest.mark.parametrize("kind", ["fp32", "bf16", "ties"])
@pytest.mark.parametrize("groups", [None, 10], ids=["one group", "crossbar"])
def test_each_line_draws_by_its_own_settings_as_the_eager_sampler(kind, groups):
    keys = line_keys(range(len(DRAWS)))
    for round_number in range(50):
        shape = (len(DRAWS),) if groups is None else (len(DRAWS), groups)
        scores = logits(kind, *shape)
        counters = round_number * 16 + torch.arange(groups or 1).expand(len(DRAWS), -1)
        noise = gumbel_noise(keys, counters, VOCAB).view(scores.shape)
        drawn = draw_static(scores, tensors(DRAWS), noise)
        assert drawn.dtype == torch.int64
        for row, draw in enumerate(DRAWS):
            if kind == "ties" and draw.top_p < 1:
                continue  # which of equal tokens stay is up to the sort; how many, the next test counts
            assert torch.equal(drawn[row], plain(scores[row], draw, noise[row])), draw


@pytest.mark.parametrize("top_p", [0.25, 0.5, 0.75])
def test_a_share_that_is_met_exactly_is_cut_where_transformers_cuts_it(top_p):
    """Four equal tokens: how many of them stay shows in what noise can pick."""
    draw, scores = Draw(temperature=1.0, top_k=0, top_p=top_p), torch.zeros(1, 4)
    picked = [
        int(draw_static(scores, tensors([draw], 4), 10 * torch.eye(4)[token : token + 1])) == token
        for token in range(4)
    ]
    assert sum(picked) == filter_logits(scores, draw).isfinite().sum() == 4 * top_p


def test_suppressed_tokens_are_never_drawn():
    scores = torch.full((1, VOCAB), -torch.inf)
    scores[0, 9], scores[0, 11] = -50.0, -49.0
    for draw in DRAWS:
        noise = gumbel_noise(line_keys([1]), torch.arange(300)[None], VOCAB)[0]
        drawn = draw_static(scores.expand(300, -1), tensors([draw] * 300), noise)
        assert set(drawn.tolist()) <= {9, 11}


def test_settings_are_changed_in_place():
    made = tensors([Draw(), Draw()])
    addresses = [tensor.data_ptr() for tensor in vars(made).values()]
    made.lines(slice(1, 2)).put(Draw(temperature=2.0, top_k=4, top_p=0.75), VOCAB)
    assert addresses == [tensor.data_ptr() for tensor in vars(made).values()]
    assert made.temperatures.tolist() == pytest.approx([0.9, 2.0])
    assert made.places.tolist() == [VOCAB - 50, VOCAB - 4] and made.shares.tolist() == [-1.0, 0.25]

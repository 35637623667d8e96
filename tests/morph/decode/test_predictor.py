"""SEQ_GROUPS below 15 against the plain formula."""

import pytest
import torch
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.options import TokenSampling

from tests.morph.pairwise import each_value

GREEDY = TokenSampling(do_sample=False)
SAMPLED = TokenSampling(temperature=0.8, top_k=20)
FILTERED = TokenSampling(temperature=1.1, top_k=30, top_p=0.6)
BATCH = 2


def plain_states(predictor, embeds: list[torch.Tensor]) -> torch.Tensor:
    """Return the last hidden state ``[B, H]`` after all of ``embeds``, by upstream's own forward without a cache."""
    sequence = predictor.small_to_mtp_projection(torch.stack(embeds, dim=1))
    return predictor.model(sequence)[:, -1]


def plain_head(head: torch.nn.Linear, states: torch.Tensor) -> torch.Tensor:
    """Return logits ``[B, V]``, one dot product at a time."""
    rows = [[(row * state).sum() for row in head.weight] for state in states]
    return torch.stack([torch.stack(row) for row in rows])


def plain_sample(logits: torch.Tensor, sampling: TokenSampling, stream: torch.Generator) -> torch.Tensor:
    """Sample each row in turn: temperature, top k, then the most probable tokens until p is crossed."""
    if not sampling.do_sample:
        return logits.argmax(-1)
    rows = []
    for row in logits / sampling.temperature:
        kept = torch.full_like(row, -torch.inf)
        mass = 0.0
        top = row.topk(sampling.top_k)
        for score, share, token in zip(top.values, top.values.softmax(-1), top.indices, strict=True):
            if mass < sampling.top_p:
                kept[token] = score
            mass += float(share)
        rows.append(kept)
    return torch.multinomial(torch.stack(rows).softmax(-1), 1, generator=stream)[:, 0]


def plain_frame(
    model, hidden, embedding, seq_groups: int, sampling: TokenSampling, stream: torch.Generator
) -> torch.Tensor:
    """Decode S groups sequentially, and the other 15 - S at once from the last of their states."""
    predictor = model.talker.code_predictor
    embeds, codes = [hidden[:, 0], embedding[:, 0]], []
    for group in range(seq_groups):
        if group > 0:
            embeds.append(predictor.model.codec_embedding[group - 1].weight[codes[-1]])
        states = plain_states(predictor, embeds)
        codes.append(plain_sample(plain_head(predictor.lm_head[group], states), sampling, stream))
    tail = [plain_head(predictor.lm_head[group], states) for group in range(seq_groups, 15)]
    if tail:
        rows = torch.stack([logits[line] for line in range(len(hidden)) for logits in tail])
        sampled = plain_sample(rows, sampling, stream)
        codes += [sampled[group :: len(tail)] for group in range(len(tail))]
    return torch.stack(codes, dim=1)


def talker_states(model, batch: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    hidden = torch.randn(batch, 1, model.width, generator=generator)
    tokens = torch.randint(64, (batch, 1), generator=generator)
    return hidden, model.talker.model.codec_embedding(tokens)


@pytest.mark.parametrize(
    ("seq_groups", "shape", "attention", "sampling"),
    each_value(
        {str(groups): groups for groups in (1, 3, 5, 14, 15)},
        {"tiny": "tiny", "tiny-1.7B": "tiny-1.7B"},
        {"sdpa": "sdpa", "eager": "eager"},
        {"greedy": GREEDY, "sampled": SAMPLED, "filtered": FILTERED},
    ),
)
@torch.inference_mode()
def test_a_frame_equals_the_plain_formula(load, seq_groups, shape, attention, sampling):
    model = load(shape, "base", "fp32", attention)
    hidden, embedding = talker_states(model)
    stream = torch.Generator().manual_seed(2)
    wanted = plain_frame(model, hidden, embedding, seq_groups, sampling, torch.Generator().manual_seed(2))
    codes = Predictor(model.talker.code_predictor).decode_frame(hidden, embedding, seq_groups, sampling, stream)
    assert codes.tolist() == wanted.tolist()
    assert codes.shape == (BATCH, 15) and codes.dtype == torch.int64

"""SEQ_GROUPS below 15 against the plain formula, and upstream's own loop through the hybrid decoder."""

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.model.crossbar import crossbar
from qwen3_tts_morph.morph.options import LoadOptions, TokenSampling

from lab.upstream.over import upstream_of
from tests.morph.attached import attached
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
    codes = Predictor(model.talker.code_predictor).decode_frame(
        hidden, embedding, seq_groups, sampling, stream
    )
    assert codes.tolist() == wanted.tolist()
    assert codes.shape == (BATCH, 15) and codes.dtype == torch.int64


def test_the_crossbar_is_a_product_of_every_head_with_every_line():
    generator = torch.Generator().manual_seed(0)
    heads, hidden = torch.randn(4, 6, 5, generator=generator), torch.randn(3, 5, generator=generator)
    wanted = torch.zeros(3, 4, 6)
    for line in range(3):
        for group in range(4):
            for token in range(6):
                wanted[line, group, token] = sum(heads[group, token, k] * hidden[line, k] for k in range(5))
    assert torch.allclose(crossbar(heads, hidden), wanted, atol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.inference_mode()
def test_teacher_forcing_returns_the_states_of_decoding(load, attention):
    model = load("tiny-1.7B", "base", "fp32", attention)
    predictor = model.talker.code_predictor
    hidden, embedding = talker_states(model)
    codes = Predictor(predictor).decode_frame(hidden, embedding, 15, GREEDY, None)
    rest = [predictor.model.codec_embedding[group].weight[codes[:, group]] for group in range(14)]
    inputs = torch.stack([embedding[:, 0], *rest], dim=1)
    states = Predictor(predictor).teacher_force(hidden, inputs)
    for group in range(15):
        wanted = plain_states(predictor, [hidden[:, 0], *inputs[:, : group + 1].unbind(1)])
        assert torch.allclose(states[:, group], wanted, atol=1e-5)
        assert torch.equal(predictor.lm_head[group](states[:, group]).argmax(-1), codes[:, group])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.inference_mode()
def test_teacher_forcing_does_not_look_ahead(load, attention):
    model = load("tiny", "base", "fp32", attention)
    hidden, embedding = talker_states(model)
    inputs = embedding.repeat(1, 15, 1)
    changed = inputs.clone()
    changed[:, 9:] += 1
    predictor = Predictor(model.talker.code_predictor)
    one, two = predictor.teacher_force(hidden, inputs), predictor.teacher_force(hidden, changed)
    assert torch.equal(one[:, :9], two[:, :9])
    assert not torch.allclose(one[:, 9], two[:, 9])


@pytest.fixture
def fresh(checkpoint):
    """Return a separate model, which a test may change."""
    return load_model(checkpoint("tiny", "base"), LoadOptions("fp32", "sdpa"))


@torch.inference_mode()
def generated(model, upstream) -> torch.Tensor:
    """Return what upstream's ``code_predictor.generate`` returns for one frame."""
    hidden, embedding = talker_states(model)
    torch.manual_seed(0)
    result = upstream.talker.code_predictor.generate(
        inputs_embeds=torch.cat((hidden, embedding), dim=1),
        max_new_tokens=15,
        do_sample=True,
        top_k=20,
        temperature=0.8,
        output_hidden_states=True,
        return_dict_in_generate=True,
    )
    return result.sequences


@pytest.mark.parametrize("seq_groups", [1, 5, 15])
def test_attached_generate_is_the_hybrid_decoder(fresh, seq_groups):
    upstream = upstream_of(fresh)
    with attached(upstream, fresh, seq_groups) as predictor, torch.inference_mode():
        codes = generated(fresh, upstream)
        torch.manual_seed(0)
        hidden, embedding = talker_states(fresh)
        wanted = predictor.decode_frame(hidden, embedding, seq_groups, SAMPLED, None)
    assert torch.equal(codes, wanted)


@torch.inference_mode()
def test_omitted_settings_are_transformers_defaults(fresh):
    """``generate`` without settings is greedy; sampling without them is temperature 1, top-k 50."""
    hidden, embedding = talker_states(fresh)
    inputs = torch.cat((hidden, embedding), dim=1)
    model = upstream_of(fresh)
    predictor = model.talker.code_predictor
    results = []
    for settings in ({}, {"do_sample": True}):
        torch.manual_seed(0)
        upstream = predictor.generate(inputs_embeds=inputs, max_new_tokens=15, **settings)
        with attached(model, fresh, 15):
            torch.manual_seed(0)
            results.append(
                torch.equal(predictor.generate(inputs_embeds=inputs, **settings).sequences, upstream)
            )
    assert results == [True, True]

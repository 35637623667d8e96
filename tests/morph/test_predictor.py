"""Below 15 groups the decoder is the paper's formula, restated here in the plainest way; attach() leaves no trace."""

from __future__ import annotations

import pytest
import torch
from qwen3_tts_morph.morph.load import load_model
from qwen3_tts_morph.morph.options import Draw
from qwen3_tts_morph.morph.predictor import Predictor, attach, crossbar
from qwen3_tts_morph.morph.sampling import draw_tokens, line_streams


def frame_inputs(model, batch: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(batch, 1, model.width, generator=generator) for _ in range(2))


def plain_states(module, tokens: torch.Tensor) -> torch.Tensor:
    """Hidden states of a whole sequence, recomputed by upstream's own model without any cache."""
    return module.model(
        inputs_embeds=module.small_to_mtp_projection(tokens), use_cache=False
    ).last_hidden_state


@torch.no_grad()
def plain_frame(module, hidden, embedding, seq_groups: int, draw: Draw, randomness) -> torch.Tensor:
    """SEQ_GROUPS passes, each over everything so far; then each head of the tail by itself on the last state."""
    sequence = [hidden, embedding]
    codes: list[torch.Tensor] = []
    for group in range(seq_groups):
        last = plain_states(module, torch.cat(sequence, dim=1))[:, -1]
        codes.append(draw_tokens(module.lm_head[group](last), draw, randomness))
        if group < 14:
            sequence.append(module.model.codec_embedding[group](codes[-1])[:, None])
    tail = [last @ module.lm_head[group].weight.T for group in range(seq_groups, 15)]
    if tail:
        codes += draw_tokens(torch.stack(tail, dim=1), draw, randomness).unbind(1)
    return torch.stack(codes, dim=1)


@pytest.mark.parametrize("seq_groups", [1, 3, 5, 14, 15])
@pytest.mark.parametrize("draw", [Draw(do_sample=False), Draw(), Draw(top_k=5, top_p=0.6)], ids=str)
@pytest.mark.parametrize("shape", ["tiny", "tiny-1.7B"])
def test_a_frame_equals_the_plain_formula(load, shape: str, draw: Draw, seq_groups: int) -> None:
    model = load(shape, "base")
    hidden, embedding = frame_inputs(model)
    module = model.talker.code_predictor
    expected = plain_frame(module, hidden, embedding, seq_groups, draw, line_streams([1, 2, 3], model.device))
    streams = line_streams([1, 2, 3], model.device)
    with torch.no_grad():
        codes = Predictor(module).decode_frame(hidden, embedding, seq_groups, draw, streams)
    assert codes.shape == (3, 15)
    assert torch.equal(codes, expected)


def test_crossbar_gives_every_head_of_the_slice_on_every_line() -> None:
    heads, hidden = torch.randn(4, 7, 5), torch.randn(2, 5)
    logits = crossbar(heads, hidden)
    assert logits.shape == (2, 4, 7)
    for line in range(2):
        for group in range(4):
            assert torch.allclose(logits[line, group], heads[group] @ hidden[line], atol=1e-6)


def test_teacher_forcing_gives_the_states_of_decoding(load) -> None:
    model = load("tiny-1.7B", "base")
    module = model.talker.code_predictor
    hidden, embedding = frame_inputs(model)
    predictor = Predictor(module)
    with torch.no_grad():
        codes = predictor.decode_frame(hidden, embedding, 15, Draw(do_sample=False), None)
        embedded = [table(codes[:, i : i + 1]) for i, table in enumerate(module.model.codec_embedding[:14])]
        states = predictor.teacher_force(hidden, torch.cat((embedding, *embedded), dim=1))
        greedy = [module.lm_head[group](states[:, group]).argmax(-1) for group in range(15)]
    assert torch.equal(torch.stack(greedy, dim=1), codes)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_teacher_forcing_is_causal(load, attention: str) -> None:
    model = load("tiny", "base", "fp32", attention)
    hidden, embedding = frame_inputs(model, 1)
    inputs = embedding.repeat(1, 15, 1)
    changed = inputs.clone()
    changed[:, -1] += 1
    predictor = Predictor(model.talker.code_predictor)
    with torch.no_grad():
        one, two = predictor.teacher_force(hidden, inputs), predictor.teacher_force(hidden, changed)
    assert torch.equal(one[:, :-1], two[:, :-1]) and not torch.equal(one[:, -1], two[:, -1])


@pytest.fixture
def fresh(checkpoint):
    """A model of the test's own, as upstream loads it: nothing stacked."""
    from qwen3_tts_morph.morph.weights import unstack

    model = load_model(checkpoint("tiny", "base")).upstream
    unstack(model.talker.code_predictor.lm_head)
    return model


def trace_of(model) -> tuple:
    """What attaching could leave behind: attributes, and where every parameter lives."""
    predictor = model.talker.code_predictor
    homes = {name: p.untyped_storage().nbytes() for name, p in model.named_parameters()}
    return sorted(vars(predictor)), homes, predictor.generate.__func__


def test_attach_leaves_no_trace(fresh) -> None:
    before = trace_of(fresh)
    with attach(fresh, 5) as predictor:
        assert isinstance(predictor, Predictor)
        assert trace_of_generate(fresh) != before[2]
    assert trace_of(fresh) == before


def trace_of_generate(model):
    return model.talker.code_predictor.generate


def test_attach_leaves_no_trace_after_an_exception(fresh) -> None:
    before = trace_of(fresh)
    with pytest.raises(KeyboardInterrupt), attach(fresh, 5):
        raise KeyboardInterrupt
    assert trace_of(fresh) == before


def test_attach_keeps_weights_that_were_stacked_before(load) -> None:
    from qwen3_tts_morph.morph.weights import stack, stacked

    model = load("tiny", "base")
    home = stack(model.talker.code_predictor.lm_head).data_ptr()
    with attach(model.upstream, 3):
        pass
    assert stacked(model.talker.code_predictor.lm_head).data_ptr() == home


def test_attaching_twice_is_refused_and_the_first_stays(fresh) -> None:
    with attach(fresh, 5):
        with pytest.raises(RuntimeError, match="attached to this model already"), attach(fresh, 3):
            pass
        assert "generate" in vars(fresh.talker.code_predictor)
    assert "generate" not in vars(fresh.talker.code_predictor)


@pytest.mark.parametrize("seq_groups", [0, 16, 2.5])
def test_seq_groups_outside_1_to_15_are_refused_before_anything_is_touched(fresh, seq_groups) -> None:
    before = trace_of(fresh)
    with pytest.raises(ValueError, match="SEQ_GROUPS"), attach(fresh, seq_groups):
        pass
    assert trace_of(fresh) == before

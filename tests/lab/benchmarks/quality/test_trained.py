"""The rows for trained tails, on a checkpoint whose tail is a copy of the stock heads."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.model.tail import About, Tail
from qwen3_tts_morph.morph.model.weights.joined_weights import stack
from qwen3_tts_morph.morph.options import TokenSampling

from lab.benchmarks.quality.distance import Trace, measure_line
from lab.benchmarks.quality.registry import STRATEGIES
from lab.benchmarks.quality.strategies import Condition

SEQ_GROUPS = 5


@pytest.fixture(scope="module")
def model(tiny: Path) -> Model:
    """A model with a tail for one SEQ_GROUPS."""
    model = load_model(tiny)
    heads = stack(model.talker.code_predictor.lm_head)
    about = About("heads", 0.1, 0.2)
    model.add_tails({SEQ_GROUPS: Tail(SEQ_GROUPS, {"heads": heads[SEQ_GROUPS:].clone()}, about, heads)})
    return model


@pytest.fixture(scope="module")
def trace(model: Model) -> Trace:
    random = torch.Generator().manual_seed(0)
    config = model.config.talker_config
    codes = torch.randint(config.code_predictor_config.vocab_size, (9, 16), generator=random)
    return Trace(torch.randn(9, 1, config.hidden_size, generator=random), codes)


def distances(model: Model, trace: Trace, name: str) -> list[float]:
    return measure_line(model, trace, Condition(STRATEGIES[name], SEQ_GROUPS))


def test_the_distance_is_measured_on_the_tail(model: Model, trace: Trace) -> None:
    stock = distances(model, trace, "crossbar")
    assert distances(model, trace, "trained") == pytest.approx(stock, abs=1e-5)
    tail = model.tails()[SEQ_GROUPS]
    kept = tail.heads.data.clone()
    tail.heads.data *= 3
    changed = distances(model, trace, "trained")
    tail.heads.data.copy_(kept)
    assert changed[:SEQ_GROUPS] == pytest.approx(stock[:SEQ_GROUPS], abs=1e-5)
    assert all(abs(one - other) > 1e-3 for one, other in zip(changed[5:], stock[5:], strict=True))
    assert distances(model, trace, "crossbar") == pytest.approx(stock, abs=1e-6)


def test_without_a_tail_the_row_raises(model: Model) -> None:
    with pytest.raises(ValueError, match="no trained tail for SEQ_GROUPS 4"):
        STRATEGIES["trained"].start(model, 4)


@torch.inference_mode()
def test_lossless_trained_drafts_with_the_tail(model: Model, trace: Trace) -> None:
    """A tail that predicts the frame's groups has them accepted in one pass; the stock heads need more."""
    module, greedy = model.talker.code_predictor, TokenSampling(do_sample=False)
    hidden, embedding = trace.hidden[:1], model.talker.get_input_embeddings()(trace.codes[:1, :1])

    def decode(name: str) -> int:
        """Return the passes the frame takes; its codes are exact."""
        predictor = STRATEGIES[name].start(model, SEQ_GROUPS).predictor
        codes = predictor.decode_frame(hidden, embedding, SEQ_GROUPS, greedy, None)
        assert torch.equal(codes, exact)
        return predictor.tally.passes

    exact = Predictor(module).decode_frame(hidden, embedding, 15, greedy, None)
    stock = decode("lossless")
    assert decode("lossless-trained") == stock > SEQ_GROUPS + 1, "the tail is the stock heads"
    inputs = torch.cat((embedding, model.code_tables()[torch.arange(14), exact[:, :-1]]), dim=1)
    state = Predictor(module).teacher_force(hidden, inputs)[0, SEQ_GROUPS - 1]
    tail = model.tails()[SEQ_GROUPS]
    kept = tail.heads.data.clone()
    tail.heads.data.zero_()
    tail.heads.data[torch.arange(15 - SEQ_GROUPS), exact[0, SEQ_GROUPS:]] = state
    passes = decode("lossless-trained"), decode("lossless")
    tail.heads.data.copy_(kept)
    assert passes == (SEQ_GROUPS + 1, stock)


def test_without_any_tail_lossless_trained_raises(tiny: Path) -> None:
    with pytest.raises(ValueError, match="no trained tail to draft with"):
        STRATEGIES["lossless-trained"].start(load_model(tiny), SEQ_GROUPS)

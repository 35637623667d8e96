"""The tail strategies against plain formulas on teacher-forced states."""

from __future__ import annotations

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.model.crossbar import crossbar
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import TokenSampling

from lab.benchmarks.quality.tails import (
    TAILS,
    BoundedPredictor,
    SecondPass,
    TailPredictor,
    TwoHalves,
    cooler,
    greedy,
)
from lab.random_checkpoint import write_checkpoint

GREEDY = TokenSampling(do_sample=False)
SAMPLED = TokenSampling(temperature=0.8, top_k=20)
BATCH = 5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load_model(write_checkpoint(tmp_path_factory.mktemp("tails") / "tiny", "tiny", "base"))


@pytest.fixture(scope="module")
def frame(model: Model) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the talker's states, group 0's tokens and their embeddings."""
    generator = torch.Generator().manual_seed(9)
    hidden = torch.randn(BATCH, 1, model.width, generator=generator)
    tokens = torch.randint(64, (BATCH, 1), generator=generator)
    return hidden, tokens, model.talker.get_input_embeddings()(tokens)


def states_of(model: Model, frame, codes: torch.Tensor) -> torch.Tensor:
    """Return the exact states ``[B, 15, H]`` of a frame with these codes."""
    hidden, _, embedding = frame
    rest = model.code_tables()[torch.arange(14), codes[:, :14]]
    return Predictor(model.talker.code_predictor).teacher_force(hidden, torch.cat((embedding, rest), dim=1))


def decode(
    model: Model, frame, predictor: Predictor, seq_groups: int, sampling: TokenSampling = GREEDY
) -> torch.Tensor:
    hidden, _, embedding = frame
    return predictor.decode_frame(hidden, embedding, seq_groups, sampling, torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", TAILS)
@torch.inference_mode()
def test_every_strategy_is_exact_with_15_groups(model, frame, name):
    module = model.talker.code_predictor
    codes = decode(model, frame, TAILS[name][1](module), 15)
    assert torch.equal(codes, decode(model, frame, Predictor(module), 15))


@torch.inference_mode()
def test_only_the_tails_sampling_changes(model, frame):
    module = model.talker.code_predictor
    stock = decode(model, frame, Predictor(module), 5, SAMPLED)
    assert torch.equal(decode(model, frame, TailPredictor(module), 5, SAMPLED), stock)
    cold = decode(model, frame, TailPredictor(module, cooler(0.0125)), 5, SAMPLED)
    likeliest = decode(model, frame, TailPredictor(module, greedy), 5, SAMPLED)
    assert torch.equal(cold, likeliest) and torch.equal(cold[:, :5], stock[:, :5])
    logits = crossbar(Predictor(module).heads[5:], states_of(model, frame, stock)[:, 4])
    assert torch.equal(likeliest[:, 5:], logits.argmax(-1)) and not torch.equal(likeliest, stock)


@pytest.mark.parametrize("seq_groups", [1, 5, 14])
@torch.inference_mode()
def test_two_halves(model, frame, seq_groups):
    """The second half comes from the state that has seen all of the first."""
    module = model.talker.code_predictor
    heads, half = Predictor(module).heads, seq_groups + (16 - seq_groups) // 2
    codes = decode(model, frame, TwoHalves(module), seq_groups)
    assert torch.equal(codes[:, :half], decode(model, frame, Predictor(module), seq_groups)[:, :half])
    if half < 15:
        last = states_of(model, frame, codes)[:, half]
        assert torch.equal(codes[:, half:], crossbar(heads[half:], last).argmax(-1))


@pytest.mark.parametrize("seq_groups", [1, 5, 14])
@torch.inference_mode()
def test_a_second_pass(model, frame, seq_groups):
    """Every group of the tail is sampled from its exact head on a state that has seen the draft before it."""
    module = model.talker.code_predictor
    draft = decode(model, frame, Predictor(module), seq_groups)
    codes = decode(model, frame, SecondPass(module), seq_groups)
    states = states_of(model, frame, draft)
    wanted = torch.einsum("gvh,bgh->bgv", Predictor(module).heads, states).argmax(-1)
    assert torch.equal(codes, wanted) and torch.equal(codes[:, :seq_groups], draft[:, :seq_groups])


@pytest.mark.parametrize("passes", [1, 2, 4, 15])
@torch.inference_mode()
def test_a_bounded_frame_takes_its_passes_and_its_first_groups_are_exact(model, frame, passes):
    module = model.talker.code_predictor
    bounded = BoundedPredictor(module)
    codes = decode(model, frame, bounded, passes)
    exact = decode(model, frame, Predictor(module), 15)
    assert torch.equal(codes[:, :passes], exact[:, :passes]) and bounded.tally.passes <= passes
    if passes == 1:
        assert torch.equal(codes, decode(model, frame, Predictor(module), 1))
    if passes == 4:
        assert bounded.tally.passes == 4 and not torch.equal(codes, exact)

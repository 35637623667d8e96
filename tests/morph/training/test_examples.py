"""Training examples on a tiny checkpoint: the talker gets what it gets when it speaks."""

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.rows import Guard, LineRequest
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.synthesizer import Engine
from qwen3_tts_morph.morph.training import pairs
from qwen3_tts_morph.morph.training.pairs import Example, Pair, make_examples, stack
from qwen3_tts_morph.morph.training.trainer import Trainer, Training, divergence, predict, predict_groups
from qwen3_tts_morph.morph.voice.create import clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice

from lab.random_checkpoint import write_checkpoint
from tests.morph.training.sounds import RATE, TEXT, noise

FRAMES = 9


@pytest.fixture(scope="module", params=["base", pytest.param("custom_voice", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny", "tiny", request.param)
    model = load_model(path, LoadOptions("fp32"))
    model.talker.codec_head.weight[model.config.talker_config.codec_eos_token_id] = 0  # its lines do not end soon
    return model


@pytest.fixture(scope="module")
def voice(model: Model) -> Voice:
    return clone_voice(model, noise(2), RATE) if model.can_clone else preset_voice(model, "ryan")


def spoken(model: Model, voice: Voice) -> torch.Tensor:
    """Return the codes ``[F, 16]`` that the model speaks greedily."""
    greedy = TokenSampling(do_sample=False)
    sampling = Sampling(greedy, greedy, repetition_penalty=1.0, max_new_tokens=FRAMES + 1)
    line = LineRequest(PromptBuilder(model).build(TEXT, voice), Guard(FRAMES, detect_loops=False), 0)
    return Engine("eager").decode(model, [line], GenerateOptions(15, sampling))[0].codes


def example_of(model: Model, voice: Voice, codes: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> Example:
    monkeypatch.setattr(pairs, "encode_waveform", lambda *_: codes)
    return make_examples(model, [Pair("a", noise(1), TEXT)], voice, "auto")[0]


def test_the_talker_gets_what_it_gets_when_it_speaks(model, voice, monkeypatch) -> None:
    codes = spoken(model, voice)
    one = example_of(model, voice, codes, monkeypatch)
    assert len(codes) == FRAMES and len(one.inputs) == one.start + 1 + FRAMES
    batch = stack([one], model.config.talker_config.codec_eos_token_id, model.device)
    with torch.no_grad():
        states = model.talker.model(batch.inputs)[0]
        first = model.talker.codec_head(states)[batch.places, : model.talker.code_predictor.config.vocab_size]
        rest = predict_groups(model.talker, states[batch.places], batch.codes)
    assert first.argmax(-1).tolist() == codes[:, 0].tolist()
    assert rest.argmax(-1).tolist() == codes[:, 1:].tolist()


def test_an_anchor_keeps_the_checkpoints_probabilities(model, voice) -> None:
    lines = make_examples(model, [Pair("a", noise(1), TEXT)], voice, "auto")
    batch = stack(lines, model.config.talker_config.codec_eos_token_id, model.device)
    left = []
    with torch.enable_grad():
        for anchor in (0.0, 10.0):
            trainer = Trainer(model, Training(rank=2, steps=10, rate=0.01, anchor=anchor))
            trainer.train(lines, [])
            with torch.no_grad():
                now, known = (predict(one.talker, batch) for one in (trainer.network, model.network))
                left.append(float(divergence(now, known)))
    assert 0 < left[1] < left[0] / 2


def test_an_anchor_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="anchor is -1: choose 0 or more"):
        Training(anchor=-1)

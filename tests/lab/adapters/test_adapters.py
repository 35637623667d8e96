"""Training an adapter on a tiny checkpoint: what is read, what the talker gets, and what comes out."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.checkpoint.adapter_file import adapt, read_adapter
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.rows import Guard, LineRequest
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.training import examples
from qwen3_tts_morph.morph.training.examples import Example, make_examples, stack
from qwen3_tts_morph.morph.training.objective import losses, predict_groups
from qwen3_tts_morph.morph.training.pairs import Pair, read_pairs
from qwen3_tts_morph.morph.voice.create import clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.file import load_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice

from lab.adapters import __main__ as command
from lab.random_checkpoint import write_checkpoint

RATE, FRAMES, TEXT = 24000, 9, "One two three."


def noise(seconds: float, seed: int = 0, rate: int = RATE) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, round(seconds * rate)).astype(np.float32)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny", "tiny", "base")


@pytest.fixture(scope="module", params=["base", pytest.param("custom_voice", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny", "tiny", request.param)
    model = load_model(path, LoadOptions("fp32"))
    model.talker.codec_head.weight[model.config.talker_config.codec_eos_token_id] = (
        0  # its lines do not end soon
    )
    return model


def write(folder: Path, name: str, sound: np.ndarray, text: str | None = TEXT, rate: int = RATE) -> Path:
    folder.mkdir(exist_ok=True)
    soundfile.write(folder / f"{name}.wav", sound, rate)
    if text is not None:
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda at: (at / "a.txt").unlink(), "a.wav has no words: write what it says into a.txt"),
        (lambda at: (at / "a.txt").write_text(" "), "a.wav has no words"),
        (lambda at: (at / "a.wav").unlink(), "a.txt has no recording beside it"),
        (lambda at: write(at, "a", noise(0.4)), "a.wav: reference is 0.40 s long: give at least 1 s"),
        (lambda at: write(at, "a", noise(31)), "a.wav is longer than 30 s: cut it, and its text"),
        (lambda at: write(at, "a", 0 * noise(2)), "a.wav: reference is silent"),
        (lambda at: (at / "a.wav").write_bytes(b"RIFF"), "a.wav cannot be read as a recording"),
        (lambda at: soundfile.write(at / "a.flac", noise(2), RATE), "a has two recordings for one text"),
        (lambda at: [one.unlink() for one in at.iterdir()], "has no recordings: put NAME.wav and NAME.txt"),
    ],
)
def test_what_cannot_be_used_is_named_with_the_fix(tmp_path, spoil, sentence) -> None:
    spoil(write(tmp_path, "a", noise(2)))
    with pytest.raises(ValueError) as error:
        read_pairs(tmp_path, RATE)
    assert sentence in str(error.value)


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
    monkeypatch.setattr(examples, "encode_waveform", lambda *_: codes)
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


def arguments(checkpoint: Path, data: Path, out: Path, *more: str) -> list[str]:
    words = [
        "--model", checkpoint, "--data", data, "--out", out, "--held-out", 1, "--device", "cpu", "--steps", 6,
    ]  # fmt: skip
    return [*map(str, words), "--batch", "2", "--check", "2", "--rank", "2", "--rate", "0.01", *more]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for seed in range(4):
        write(tmp_path / "data", f"{seed}", noise(1 + seed / 10, seed))
    return tmp_path / "data"


@pytest.mark.parametrize("layers", [pytest.param("talker", marks=pytest.mark.slow), "all"])
def test_an_adapter_is_trained_and_loaded_as_any_other(checkpoint, data, tmp_path, layers) -> None:
    trained = []
    for name in ("one", "two"):
        out = tmp_path / name
        assert command.main(arguments(checkpoint, data, out, "--layers", layers)) == 0
        trained.append(read_adapter(out))
        assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny"
        assert (
            not [*out.glob("*.bin"), *out.glob("*.md")] and load_voice(out / command.VOICE).kind == "x_vector"
        )
    about = json.loads((tmp_path / "one" / command.TRAINED).read_text())
    assert sum(about["losses"]) < sum(about["losses_before"]) and about["kept_step"] > 0
    first, second = (one.parts for one in trained)
    assert any("code_predictor" in name for name in first) == (layers == "all")
    assert all(torch.equal(part.up, second[name].up) for name, part in first.items())  # the same seed
    model = load_model(checkpoint, LoadOptions("fp32"))
    adapted = adapt(model, trained[0], 1.0, checkpoint)
    check_as_peft(checkpoint, tmp_path / "one", adapted)
    voice = load_voice(tmp_path / "one" / command.VOICE)
    [before, after] = [
        torch.stack(losses(one.talker, stack(make_examples(one, [Pair("3", noise(1.3, 3), TEXT)], voice, "auto"),
                                             one.config.talker_config.codec_eos_token_id, one.device)))
        for one in (model, adapted)
    ]  # fmt: skip
    assert before.tolist() == pytest.approx(about["losses_before"], abs=1e-3)
    assert after.tolist() == pytest.approx(about["losses"], abs=1e-3)


def check_as_peft(checkpoint: Path, folder: Path, adapted: Model) -> None:
    """peft reads the adapter too, and merges it to the same weights."""
    peft = pytest.importorskip("peft", reason="not run: no peft (tests/requirements.txt)")
    network = load_model(checkpoint, LoadOptions("fp32")).network
    merged = peft.PeftModel.from_pretrained(network, folder).merge_and_unload().state_dict()
    ours = adapted.network.state_dict()
    assert merged.keys() == ours.keys()
    assert all(torch.allclose(one, ours[name], atol=1e-6) for name, one in merged.items())

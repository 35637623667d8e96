"""Training an adapter on a tiny checkpoint: what is read, what the talker gets, and what comes out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.checkpoint.adapter_file import adapt, read_adapter
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.request import LineRequest
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.voice.create import clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.file import load_voice
from qwen3_tts_morph.morph.voice.prompt import build_prompt
from qwen3_tts_morph.morph.voice.voice import Voice

from lab.adapters import __main__ as command
from lab.adapters import examples
from lab.adapters.examples import NOTHING, Example, make_examples, stack
from lab.adapters.objective import losses, predict_groups
from lab.adapters.pairs import Pair, read_pairs, read_texts
from lab.adapters.train import Training
from lab.random_checkpoint import write_checkpoint

RATE, FRAMES, TEXT = 24000, 9, "One two three."


def noise(seconds: float, seed: int = 0, rate: int = RATE) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, round(seconds * rate)).astype(np.float32)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny", "tiny", "base")


@pytest.fixture(scope="module", params=["base", "custom_voice"])
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


def test_pairs_are_mono_at_the_codecs_rate_in_the_order_of_their_names(tmp_path: Path) -> None:
    write(tmp_path, "b", np.stack([noise(1.5, rate=16000)] * 2, axis=1), " Two. \n", rate=16000)
    write(tmp_path, "a", noise(1.2), "One.")
    one, two = read_pairs(tmp_path, RATE)
    assert (one.name, one.text, len(one.waveform)) == ("a", "One.", round(1.2 * RATE))
    assert (two.name, two.text, two.waveform.shape) == ("b", "Two.", (round(1.5 * RATE),))
    assert read_texts(tmp_path) == {"a": "One.", "b": "Two."}


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
def test_what_cannot_be_used_is_named_with_the_fix(
    tmp_path: Path, spoil: Callable[[Path], object], sentence: str
) -> None:
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
    line = LineRequest(build_prompt(model, TEXT, voice), Guard(FRAMES, detect_loops=False), 0)
    return Engine("eager").decode(model, [line], GenerateOptions(15, sampling))[0].codes


def example_of(model: Model, voice: Voice, codes: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> Example:
    monkeypatch.setattr(examples, "encode_waveform", lambda *_: codes)
    return make_examples(model, [Pair("a", noise(1), TEXT)], voice, "auto")[0]


def test_the_talker_gets_what_it_gets_when_it_speaks(
    model: Model, voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = spoken(model, voice)
    one = example_of(model, voice, codes, monkeypatch)
    assert len(codes) == FRAMES and len(one.inputs) == one.start + 1 + FRAMES
    batch = stack([one], model.config.talker_config.codec_eos_token_id, model.device)
    with torch.no_grad():
        states = model.talker.model(inputs_embeds=batch.inputs, use_cache=False).last_hidden_state[0]
        first = model.talker.codec_head(states)[batch.places, : model.talker.code_predictor.vocab_size]
        rest = predict_groups(model.talker, states[batch.places], batch.codes)
    assert first.argmax(-1).tolist() == codes[:, 0].tolist()
    assert rest.argmax(-1).tolist() == codes[:, 1:].tolist()


def test_lines_of_a_batch_do_not_change_one_another(
    model: Model, voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes, end = spoken(model, voice), model.config.talker_config.codec_eos_token_id
    lines = [example_of(model, voice, some, monkeypatch) for some in (codes, codes[:5])]
    batch = stack(lines, end, model.device)
    for row, one in enumerate(lines):
        known = batch.targets[row][batch.targets[row] != NOTHING]
        assert (
            known.tolist() == [*one.codes[:, 0].tolist(), end] and batch.targets[row, one.start] == known[0]
        )
    with torch.no_grad():
        together = torch.stack(losses(model.talker, batch))
        alone = [torch.stack(losses(model.talker, stack([one], end, model.device))) for one in lines]
    sizes = torch.tensor([[10.0, 9.0], [6.0, 5.0]])  # targets of group 0 with the end, and frames
    torch.testing.assert_close(together, (torch.stack(alone) * sizes).sum(0) / sizes.sum(0))


def test_no_position_before_the_end_of_the_prompt_is_learnt(model: Model, voice: Voice) -> None:
    [one] = make_examples(model, [Pair("a", noise(1), TEXT)], voice, "english")
    prompt = build_prompt(model, TEXT, voice, "english")
    assert one.start == prompt.length - 1 and torch.equal(one.inputs[: prompt.length], prompt.embeds)
    with pytest.raises(ValueError, match="a: language 'x' is unknown"):
        make_examples(model, [Pair("a", noise(1), TEXT)], voice, "x")


def test_impossible_trainings_are_refused() -> None:
    for wrong, sentence in (
        ({"rank": 0}, "rank is 0: choose 1 or more"),
        ({"rate": float("nan")}, "rate is nan: choose a number above 0"),
        ({"layers": "heads"}, "layers is 'heads': choose one of talker, all"),
    ):
        with pytest.raises(ValueError, match=sentence):
            Training(**wrong)  # type: ignore[arg-type]
    shares = [Training(steps=40).rate_at(step) for step in range(40)]
    assert (
        shares[:2] == [0.5, 1.0] and shares == [0.5, *sorted(shares[1:], reverse=True)] and shares[-1] < 0.01
    )


def arguments(checkpoint: Path, data: Path, out: Path, *more: str) -> list[str]:
    words = [
        "--model",
        checkpoint,
        "--data",
        data,
        "--out",
        out,
        "--held-out",
        1,
        "--device",
        "cpu",
        "--steps",
        6,
    ]
    return [*map(str, words), "--batch", "2", "--check", "2", "--rank", "2", "--rate", "0.01", *more]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for seed in range(4):
        write(tmp_path / "data", f"{seed}", noise(1 + seed / 10, seed))
    return tmp_path / "data"


def test_wrong_inputs_end_before_anything_is_trained(
    checkpoint: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for more, sentence in (
        (["--held-out", "4"], "held-out is 4: choose 0 to 3"),
        (["--reference", "9"], "reference is '9': choose a name of"),
        (["--speaker", "ryan"], "tiny has no preset speakers"),
    ):
        assert command.main(arguments(checkpoint, data, tmp_path / "out", *more)) == 1
        assert sentence in caplog.messages[-1]
    assert not (tmp_path / "out").exists()
    assert command.main(arguments(checkpoint, data, data)) == 1
    assert "is there already: choose another folder" in caplog.messages[-1]


@pytest.mark.parametrize("layers", ["talker", "all"])
def test_an_adapter_is_trained_and_loaded_as_any_other(
    checkpoint: Path, data: Path, tmp_path: Path, layers: str
) -> None:
    pytest.importorskip("peft", reason="not run: no peft (tests/requirements.txt)")
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
    voice = load_voice(tmp_path / "one" / command.VOICE)
    [before, after] = [
        torch.stack(losses(one.talker, stack(make_examples(one, [Pair("3", noise(1.3, 3), TEXT)], voice, "auto"),
                                             one.config.talker_config.codec_eos_token_id, one.device)))
        for one in (model, adapted)
    ]  # fmt: skip
    assert before.tolist() == pytest.approx(about["losses_before"], abs=1e-3)
    assert after.tolist() == pytest.approx(about["losses"], abs=1e-3)

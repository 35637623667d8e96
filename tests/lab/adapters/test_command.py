"""Experiments with adapters: a folder's recordings are read, and an adapter is trained and loaded as any other."""

import json
from pathlib import Path

import pytest
import soundfile
import torch
from qwen3_tts_morph.morph.checkpoint.adapter_file import adapt, read_adapter
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import LoadOptions
from qwen3_tts_morph.morph.training.pairs import Pair, make_examples, stack
from qwen3_tts_morph.morph.training.trainer import losses, predict
from qwen3_tts_morph.morph.voice.file import load_voice
from qwen3_tts_morph.morph.voice.voice import Voice

from lab.adapters import __main__ as command
from lab.adapters.pairs import read_pairs
from lab.random_checkpoint import write_checkpoint
from tests.morph.training.sounds import RATE, TEXT, noise, speech, write


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny", "tiny", "base")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda at: (at / "a.txt").unlink(), "a: it has no words: write what it says into a.txt"),
        (lambda at: (at / "a.txt").write_text(" "), "a: it has no words"),
        (lambda at: write(at, "a", noise(2)), "a: no speech is found: its level hardly changes"),
        (lambda at: (at / "a.wav").rename(at / "b.wav"), "a.txt: it has no recording beside it"),
        (lambda at: write(at, "a", speech(0.4)), "a: reference is 0.40 s long: give at least 1 s"),
        (lambda at: write(at, "a", speech(31)), "a: it is longer than 30 s: cut it, and its text"),
        (lambda at: write(at, "a", 0 * speech(2)), "a: reference is silent"),
        (lambda at: (at / "a.wav").write_bytes(b"RIFF"), "a.wav: cannot be read as a recording"),
        (
            lambda at: soundfile.write(at / "a.flac", speech(2), RATE),
            "a.flac: it is one of two recordings for one text",
        ),
        (lambda at: [one.unlink() for one in at.iterdir()], "has no recordings: put NAME.wav and NAME.txt"),
    ],
)
def test_what_cannot_be_used_is_named_with_the_fix(tmp_path, spoil, sentence) -> None:
    spoil(write(tmp_path, "a", speech(2)))
    with pytest.raises(ValueError) as error:
        read_pairs(tmp_path, RATE)
    assert sentence in str(error.value)


def arguments(checkpoint: Path, data: Path, out: Path, *more: str) -> list[str]:
    words = [
        "--model", checkpoint, "--data", data, "--out", out, "--held-out", 1, "--device", "cpu", "--steps", 6,
    ]  # fmt: skip
    return [*map(str, words), "--batch", "2", "--check", "2", "--rank", "2", "--rate", "0.01", *more]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for seed in range(4):
        write(tmp_path / "data", f"{seed}", speech(1 + seed / 10, seed))
    return tmp_path / "data"


@pytest.mark.parametrize("layers", [pytest.param("talker", marks=pytest.mark.slow), "all"])
def test_an_adapter_is_trained_and_loaded_as_any_other(checkpoint, data, tmp_path, layers) -> None:
    trained = []
    for name in ("one", "two"):
        out = tmp_path / name
        assert command.main(arguments(checkpoint, data, out, "--layers", layers)) == 0
        trained.append(read_adapter(out))
        assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny"
        assert not [*out.glob("*.bin"), *out.glob("*.md")] and load_voice(out / command.VOICE).kind == "x_vector"
    about = json.loads((tmp_path / "one" / command.TRAINED).read_text())
    assert sum(about["losses"]) < sum(about["losses_before"]) and about["kept_step"] > 0
    first, second = (one.parts for one in trained)
    assert any("code_predictor" in name for name in first) == (layers == "all")
    assert all(torch.equal(part.up, second[name].up) for name, part in first.items())  # the same seed
    model = load_model(checkpoint, LoadOptions("fp32"))
    adapted = adapt(model, trained[0], 1.0, checkpoint)
    check_as_peft(checkpoint, tmp_path / "one", adapted)
    asked = command.parser().parse_args(arguments(checkpoint, data, out, "--layers", layers))
    cloned = command.choose_voice(model, read_pairs(data, model.sample_rate), asked)
    voice = load_voice(tmp_path / "one" / command.VOICE)
    assert not torch.equal(cloned.speaker_embedding, voice.speaker_embedding)  # it was trained, too
    [before, after] = [held_out_losses(*pair) for pair in ((model, cloned), (adapted, voice))]
    assert before.tolist() == pytest.approx(about["losses_before"], abs=1e-3)
    assert after.tolist() == pytest.approx(about["losses"], abs=1e-3)


def held_out_losses(model: Model, voice: Voice) -> torch.Tensor:
    lines = make_examples(model, [Pair("3", speech(1.3, 3), TEXT)], voice, "auto")
    batch = stack(lines, model.config.talker_config.codec_eos_token_id, model.device)
    return torch.stack(losses(predict(model.talker, batch), batch))


def check_as_peft(checkpoint: Path, folder: Path, adapted: Model) -> None:
    """peft reads the adapter too, and merges it to the same weights."""
    peft = pytest.importorskip("peft", reason="not run: no peft (tests/requirements.txt)")
    network = load_model(checkpoint, LoadOptions("fp32")).network
    merged = peft.PeftModel.from_pretrained(network, folder).merge_and_unload().state_dict()
    ours = adapted.network.state_dict()
    assert merged.keys() == ours.keys()
    assert all(torch.allclose(one, ours[name], atol=1e-6) for name, one in merged.items())

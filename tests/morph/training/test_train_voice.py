"""A voice trained on a tiny checkpoint: what is saved, what is shown, and how a training ends early."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.adapter_file import adapt, read_adapter
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import LoadOptions
from qwen3_tts_morph.morph.speech.lines import Spoken
from qwen3_tts_morph.morph.training import train_voice as module
from qwen3_tts_morph.morph.training import trainer
from qwen3_tts_morph.morph.training.train_voice import (
    CARD,
    TRAINED,
    VOICE,
    Places,
    TrainedVoice,
    VoiceTraining,
    Watcher,
    train_voice,
)
from qwen3_tts_morph.morph.training.trainer import Losses, Trainer, Training, plot_losses
from qwen3_tts_morph.morph.voice.create import clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.file import load_voice
from qwen3_tts_morph.morph.voice.recording import Recording
from qwen3_tts_morph.morph.voice.voice import Voice

from tests.morph.training.sounds import RATE, TEXT, noise, speech

OPTIONS = Training(rank=2, steps=4, rate=0.01, batch=2, check=2)
RECORDINGS = [Recording(f"{seed}", speech(1 + seed / 10, seed)[None], RATE, TEXT) for seed in range(5)]
ASKED = VoiceTraining("anna", RECORDINGS, options=OPTIONS)


class Stop(Exception):
    """ComfyUI's error of a cancelled run."""


class Record(Watcher):
    """Records what is shown; ``until``: the update after which it stops the training."""

    def __init__(self, until: int = 99) -> None:
        self.until = until
        self.said: list[str] = []
        self.done: list[tuple[int, int, str]] = []
        self.samples: list[tuple[str, Spoken]] = []
        self.history: Sequence[Losses] = ()

    def say(self, text: str) -> None:
        self.said.append(text)

    def advance(self, done: int, of: int, left: str) -> None:
        self.done.append((done, of, left))
        if done == self.until:
            raise Stop

    def show_losses(self, history: Sequence[Losses]) -> None:
        self.history = list(history)

    def play(self, name: str, sample: Spoken) -> None:
        self.samples.append((name, sample))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "loras" / "anna", tmp_path / "voices" / "anna.safetensors")


@pytest.fixture(autouse=True)
def same_speaker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random encoder cannot tell speakers apart."""
    monkeypatch.setattr(module, "check_speaker", lambda *_: None)


def train(model: Model, places: Places, watcher: Watcher | None = None, asked: VoiceTraining = ASKED) -> TrainedVoice:
    return train_voice(model, asked, None, places, watcher or Record())


def weights_of(model: Model) -> list[torch.Tensor]:
    return [one.clone() for one in model.network.parameters()]


def test_an_adapter_and_its_voice_are_saved_and_shown(load, places) -> None:
    model, shown = load(), Record()
    before = weights_of(model)
    with torch.inference_mode():  # as in ComfyUI
        trained = train(model, places, shown)
    assert {one.name for one in places.folder.iterdir()} == {
        *("adapter_config.json", "adapter_model.safetensors"),
        *(VOICE, TRAINED, CARD),
    }
    assert [*places.folder.parent.iterdir()] == [places.folder]
    adapter = read_adapter(places.folder)
    config = json.loads((places.folder / "adapter_config.json").read_text())
    assert config["lora_alpha"] == config["r"] == OPTIONS.rank
    assert adapter.trained_on == model.name and adapt(model, adapter, 1.0, Path()).adapters
    assert all(map(torch.equal, before, weights_of(model)))
    assert torch.equal(load_voice(places.voice).speaker_embedding, trained.voice.speaker_embedding)
    assert [done[:2] for done in shown.done] == [(1, 4), (2, 4), (3, 4), (4, 4)] and shown.done[-1][2] == "1 s"
    assert [one.step for one in shown.history] == [0, 2, 4] == [one.step for one in trained.history]
    assert [name for name, _ in shown.samples] == ["after 2 updates", "after 4 updates"]
    assert all(len(sample.waveform) for _, sample in shown.samples)
    assert any(text.startswith("training on the CPU will take about") for text in shown.said)
    assert trained.report.startswith("trained anna on 4 recordings (5 s)")
    assert "s of speech are little" in trained.report
    card = (places.folder / CARD).read_text(encoding="utf-8")
    assert f"base_model: {model.name}\n" in card and "The speaker has agreed" in card and trained.report in card
    assert plot_losses(trained.history).shape[2] == 3


def test_the_same_inputs_are_not_trained_again(load, places) -> None:
    first = train(load(), places)
    places.voice.unlink()
    shown = Record()
    again = train(load(), places, shown)
    assert not shown.done and places.voice.exists() and again.report.endswith(first.report)
    assert [sum(one.held_out) for one in again.history] == [sum(one.held_out) for one in first.history]
    with pytest.raises(ValueError, match="a LoRA named anna exists already: choose another name"):
        train(load(), places, asked=replace(ASKED, options=replace(OPTIONS, rank=3)))
    with pytest.raises(ValueError, match="a voice named anna exists already: choose another name"):
        train(load(), replace(places, folder=places.folder.with_name("other")))


def test_a_cancelled_training_keeps_the_best_weights_so_far(load, places) -> None:
    with pytest.raises(Stop):
        train(load(), places, Record(until=1))
    assert not places.folder.exists() and not places.voice.exists()
    with pytest.raises(Stop):
        train(load(), places, Record(until=3))
    assert len(read_adapter(places.folder).parts) and places.voice.exists()
    about = json.loads((places.folder / TRAINED).read_text(encoding="utf-8"))
    assert about["kept_step"] == 2 and "It ended early: it was stopped." in about["report"]


def test_losses_that_are_not_finite_end_it_with_the_last_good_weights(load, places, monkeypatch) -> None:
    real = Trainer._gradient

    def spoilt(self: Trainer, batch, step: int):
        found = real(self, batch, step)
        if step == 3:
            self.weights[0].grad.fill_(float("nan"))
        return found

    monkeypatch.setattr(Trainer, "_gradient", spoilt)
    trained = train(load(), places)
    assert "It ended early: step 3's gradient is not finite: choose a lower rate" in trained.report
    assert "the weights of update 2 of 4 are saved" in trained.report
    assert read_adapter(places.folder).parts


def test_weights_with_a_loss_that_is_not_a_number_are_not_kept(load, places, monkeypatch) -> None:
    real = Trainer._check

    def spoilt(self: Trainer, step: int, *more: object) -> bool:
        nan = [torch.tensor(float("nan"))] * 2
        with monkeypatch.context() as patch:
            if step == 4:
                patch.setattr(trainer, "losses", lambda *_: nan)
            return real(self, step, *more)

    monkeypatch.setattr(Trainer, "_check", spoilt)
    assert "the weights of update 2 of 4 are saved" in train(load(), places).report


def test_without_a_check_that_is_finite_nothing_is_saved(load, places) -> None:
    with pytest.raises(ValueError, match="gradient is not finite: choose a lower rate"):
        train(load(), places, asked=replace(ASKED, options=replace(OPTIONS, rate=1e30, check=9)))
    assert not places.folder.exists()


def test_a_model_or_voice_that_cannot_be_trained_is_named_with_the_fix(checkpoint, load, places) -> None:
    int8 = load_model(checkpoint(), LoadOptions("fp32", weights="int8"))
    custom, design = load(kind="custom_voice"), load(kind="voice_design")
    train(load(), places)
    adapted = adapt(load(), read_adapter(places.folder), 1.0, Path())
    icl: Voice = replace(
        clone_voice(load(), noise(2), RATE), kind="icl", ref_codes=torch.zeros(9, 16).long(), transcript=TEXT
    )
    other = Places(places.folder.with_name("b"), places.voice.with_name("b.safetensors"))
    for model, voice, sentence in [
        (int8, None, "has int8 weights, which cannot be trained: choose weights full"),
        (design, None, "is a VoiceDesign checkpoint and cannot clone voices: load a Base checkpoint"),
        (custom, None, "load a Base checkpoint, or give a preset voice"),
        (adapted, None, "has an adapter: train the checkpoint without Load LoRA"),
        (load(), icl, "is of kind icl: give an x-vector clone or a preset, or none"),
    ]:
        with pytest.raises(ValueError) as error:
            train(model, other, asked=replace(ASKED, voice=voice))
        assert sentence in str(error.value)
    trained = train(custom, other, asked=replace(ASKED, voice=preset_voice(custom, "ryan")))
    assert trained.voice.speaker == "ryan"


def test_if_no_recording_can_be_used_each_has_its_reason(load, places) -> None:
    asked = VoiceTraining("anna", [Recording("a", noise(2)[None], RATE, TEXT)], refused={"b.wav": "it is broken"})
    with pytest.raises(ValueError) as error:
        train(load(), places, asked=asked)
    assert str(error.value).startswith("no recording can be used: b.wav: it is broken\na: no speech is found")


def test_a_disk_without_room_is_noticed_before_the_training(load, places, monkeypatch) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1_000_000}))
    shown = Record()
    with pytest.raises(ValueError, match="the disk has 1 MB free and the LoRA needs 67 MB: make room"):
        train(load(), places, shown)
    assert not shown.done


def test_a_failed_save_leaves_nothing(load, places, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_voice", fail)
    with pytest.raises(ValueError, match=r"LoRA anna cannot be saved \(No space left on device\)"):
        train(load(), places)
    assert not [*places.folder.parent.iterdir()] and not places.voice.exists()

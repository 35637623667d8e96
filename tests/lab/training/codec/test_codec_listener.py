"""The listener of the codec's training: it learns voices from recordings and pulls decoded voices towards them."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import pytest
import torch

from lab.training.codec.data import Speech, pack_lines, sample_batch
from lab.training.codec.listener import Listener, speaker_loss, voice_loss
from lab.training.codec.trainer import Trainer
from tests.lab.training.codec.tiny_codec import line, tiny

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

PITCHES = {"a": 200.0, "b": 310.0, "c": 470.0}


@pytest.fixture(scope="module")
def speech() -> Speech:
    return pack_lines([line(name, pitch) for name, pitch in PITCHES.items() for _ in range(2)])


def test_a_crops_voice_is_the_one_in_its_middle(speech: Speech) -> None:
    assert speech.voice_count == 3
    options = dataclasses.replace(tiny().training, gain_db=(0.0, 0.0), silent_start=0.0)
    batches = [sample_batch(speech, options, 0.0, step) for step in range(20)]
    assert {int(voice) for batch in batches for voice in batch.voices} == {0, 1, 2}
    line_cells = len(speech.voices) // 6
    assert speech.voices[::line_cells][:6].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.slow
def test_it_learns_to_recognise_voices_at_any_level(speech: Speech) -> None:
    torch.manual_seed(0)
    listener, options = Listener(3), tiny().training
    optimizer = torch.optim.AdamW(listener.parameters(), 1e-3)
    for step in range(40):
        batch = sample_batch(speech, options, 0.0, step)
        optimizer.zero_grad()
        speaker_loss(listener(batch.wave), batch.voices).backward()
        optimizer.step()
    listener.eval()
    crops = [sample_batch(speech, options, 0.0, step) for step in range(1000, 1010)]
    with torch.no_grad():
        right = torch.cat([listener(crop.wave).scores.argmax(1) == crop.voices for crop in crops])
        quiet = listener(0.3 * crops[0].wave).embedding
        loud = listener(crops[0].wave).embedding
    assert right.float().mean() > 0.9
    assert torch.allclose(quiet, loud, atol=0.05)


def test_the_voice_loss_is_zero_for_equal_audio_and_positive_for_other_audio() -> None:
    torch.manual_seed(0)
    listener = Listener(3).requires_grad_(False)
    seconds = torch.arange(24000) / 24000
    one, other = (0.3 * torch.sin(2 * torch.pi * pitch * seconds)[None] for pitch in (200.0, 470.0))
    assert float(voice_loss(listener(one), listener(one))) == pytest.approx(0, abs=1e-5)
    assert float(voice_loss(listener(other), listener(one))) > 0.05


def test_the_codec_gets_the_voice_loss_and_the_listener_learns_from_recordings_only(speech: Speech) -> None:
    trainer = Trainer(tiny(), speech)
    found = [trainer.train_step() for _ in range(6)]
    assert "voice" not in found[3] and "telling voices" in found[3], "before the discriminators"
    assert {"voice", "telling voices"} <= found[-1].keys()
    assert set(trainer.updater.balancer.sizes) == {"spectral", "fooling", "features", "voice"}
    batch = sample_batch(speech, trainer.config.training, 0.0, 50)
    listener = copy.deepcopy(trainer.listener)
    trainer.updater.update(batch, True, True)
    speaker_loss(listener(batch.wave), batch.voices).backward()
    for ours, theirs in zip(trainer.listener.parameters(), listener.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-4, atol=1e-7)


def test_without_a_share_there_is_no_listener(speech: Speech) -> None:
    config = tiny()
    silent = dataclasses.replace(config.adversarial, shares=(1.0, 1.5, 2.5, 0.0))
    trainer = Trainer(dataclasses.replace(config, adversarial=silent), speech)
    found = [trainer.train_step() for _ in range(6)]
    assert trainer.listener is None and "telling" in found[-1]
    assert not {"voice", "telling voices"} & set(found[-1])
    with pytest.raises(ValueError, match="shares"):
        dataclasses.replace(silent, shares=(1.0, 1.0, 1.0))


def test_a_resumed_training_restores_its_listener(speech: Speech, tmp_path: Path) -> None:
    first, second = Trainer(tiny(), speech), Trainer(tiny(), speech)
    for _ in range(6):
        first.train_step()
    first.save(tmp_path / "state.safetensors")
    second.resume(tmp_path / "state.safetensors")
    ours, theirs = first.train_step(), second.train_step()
    for name in ("telling voices", "voice", "mel"):
        assert float(ours[name]) == pytest.approx(float(theirs[name]), rel=1e-4), name

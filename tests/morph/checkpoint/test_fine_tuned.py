"""Checkpoints as trainers write them: several files, speakers of their own, files that are left out."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.options import LoadOptions, Sampling
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from safetensors.torch import load_file, save_file

FP32 = LoadOptions("fp32", "sdpa")


@pytest.fixture
def tuned(checkpoint, tmp_path) -> Path:
    """Return a Base checkpoint as upstream's fine-tuning leaves it, with two speakers."""
    path = shutil.copytree(checkpoint("tiny", "base"), tmp_path / "tuned")
    tensors = load_file(path / "model.safetensors")
    rows = tensors["talker.model.codec_embedding.weight"]
    rows[1000], rows[1001] = torch.ones(rows.shape[1]), -torch.ones(rows.shape[1])
    kept = {name: one for name, one in tensors.items() if not name.startswith("speaker_encoder.")}
    save_file(kept, path / "model.safetensors", metadata={"format": "pt"})
    file = path / "config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["tts_model_type"] = "custom_voice"
    config["talker_config"] |= {"spk_id": {"anna": 1000, "Ben": 1001}, "spk_is_dialect": {"anna": False}}
    file.write_text(json.dumps(config), encoding="utf-8")
    return path


def test_several_speakers_are_loaded(tuned):
    model = load_model(tuned, FP32)
    assert model.speakers == ["anna", "Ben"] and not model.can_clone
    spoken = [PromptBuilder(model).build("Hi.", preset_voice(model, name)).embeds for name in ("anna", "ben")]
    assert not torch.equal(*spoken)


def test_without_generation_config_the_sampling_is_that_of_the_published_checkpoints(tuned, caplog):
    (tuned / "generation_config.json").unlink()
    with caplog.at_level(logging.WARNING):
        assert load_model(tuned, FP32).sampling == Sampling()
    assert "tuned has no generation_config.json: the sampling is that of" in caplog.text


def test_a_base_checkpoint_without_its_speaker_encoder_is_custom_voice(tuned):
    file = tuned / "config.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"custom_voice"', '"base"'), encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"is base, and the files have no speaker encoder .*: a model that was trained"
    ):
        load_model(tuned)

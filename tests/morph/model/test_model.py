"""What a loaded checkpoint says of itself."""

import json
import re

import pytest
import torch

LANGUAGES = "auto, chinese, english, french, german, italian, japanese, korean, portuguese, russian, spanish"


def test_languages_are_those_of_the_checkpoint_without_dialects(load):
    assert ", ".join(load("tiny", "base").languages) == LANGUAGES


def test_speakers_are_listed_in_the_order_of_the_config(load, monkeypatch):
    model = load("tiny", "custom_voice")
    assert " ".join(model.speakers) == "serena vivian uncle_fu ryan aiden ono_anna sohee eric dylan"
    assert load("tiny", "base").speakers == []
    monkeypatch.setattr(model.config.talker_config, "spk_id", None)  # as some fine-tuned configs have it
    assert model.speakers == []


@pytest.mark.parametrize(
    ("shape", "kind", "follows", "clones"),
    [
        ("tiny", "base", False, True),
        ("tiny-1.7B", "base", False, True),
        ("tiny", "custom_voice", False, False),
        ("tiny-1.7B", "custom_voice", True, False),
        ("tiny", "voice_design", True, False),
        ("tiny-1.7B", "voice_design", True, False),
    ],
)
def test_each_checkpoint_knows_what_it_can_do(load, shape, kind, follows, clones):
    model = load(shape, kind)
    assert model.type == kind and model.size == ("1b7" if "1.7B" in shape else "0b6")
    assert model.follows_instructions == follows
    assert model.can_clone == clones


def test_rates_and_widths(load):
    model = load("tiny-1.7B", "base")
    assert (model.sample_rate, model.samples_per_frame) == (24000, 1920)
    assert model.width == 96
    assert model.code_tables().shape == (15, 64, 96)
    assert torch.equal(model.code_tables()[3], model.talker.code_predictor.model.codec_embedding[3].weight)


def test_sampling_is_the_checkpoints_own(load, checkpoint):
    model = load("tiny", "base")
    said = json.loads((checkpoint() / "generation_config.json").read_text(encoding="utf-8"))
    assert model.sampling.talker.temperature == said["temperature"]
    assert model.sampling.subtalker.top_k == said["subtalker_top_k"]
    assert model.sampling.repetition_penalty == said["repetition_penalty"]
    assert model.sampling.max_new_tokens == said["max_new_tokens"]


def test_a_turns_control_tokens_are_one_token_each(load):
    model = load("tiny", "base")
    assert model.tokenize_turn("assistant", "Hi").shape == (1, 7)  # and assistant, newline, H, i, newline
    assert model.tokenize_turn("user", "Ärger 你好").shape[1] == 5 + len("Ärger 你好".encode())
    assert model.put_ids(model.texts.line("Hi")).shape == (1, 10)


def test_the_module_holds_talker_and_codec_and_may_be_given_a_device(load):
    model = load("tiny", "base")
    module = model.module
    parts = {id(weight) for weight in module.parameters()}
    assert {id(weight) for weight in model.talker.parameters()} < parts
    assert {id(weight) for weight in model.codec.parameters()} < parts
    module.device = torch.device("cpu")  # ComfyUI sets it
    assert type(module).__name__ == "Qwen3TTS"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_summary_says_what_was_loaded(load, precision):
    summary = load("tiny-1.7B", "voice_design", precision).summary()
    dtype = {"fp32": "float32", "bf16": "bfloat16"}[precision]
    loaded = r"0\.00\d+ GB"
    assert re.fullmatch(rf"tiny-1\.7B-voice_design \(1\.7B VoiceDesign, {dtype}, sdpa, cpu, {loaded}\)", summary)

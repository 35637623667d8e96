"""Damaged configs: each raises a one-line ValueError naming checkpoint and cause, before memory is allocated."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint import load
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.verify import blame, is_out_of_memory

from tests.morph.checkpoint.test_verify import change_config
from tests.morph.pairwise import thinned

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
CODEC = "speech_tokenizer/config.json"
Damage = Callable[[Path], None]


@pytest.fixture
def mine(checkpoint, tmp_path) -> Path:
    return shutil.copytree(checkpoint("tiny", "custom_voice"), tmp_path / "mine")


def text(file: str, content: str) -> tuple[str, Damage]:
    """Replace the complete file by this."""
    return f"{file} is {content[:12]}", lambda path: (path / file).write_text(content, encoding="utf-8")


def field(file: str, name: str, value: object) -> tuple[str, Damage]:
    return f"{name} {str(value)[:30]}", lambda path: change_config(path / file, name, value)


def cut(file: str) -> tuple[str, Damage]:
    """As a download that broke off leaves it."""

    def damage(path: Path) -> None:
        raw = (path / file).read_bytes()
        (path / file).write_bytes(raw[: len(raw) * 2 // 3])

    return f"{file} cut off", damage


JSON_FILES = (CONFIG, GENERATION, TOKENIZER, CODEC, "vocab.json")
T, P = "talker_config", "talker_config.code_predictor_config"
D, E = "decoder_config", "encoder_config"
DAMAGED: list[tuple[str, Damage]] = [
    *(text(file, "[]") for file in JSON_FILES),
    *(text(file, "") for file in JSON_FILES),
    *(cut(file) for file in (*JSON_FILES, "model.safetensors", "speech_tokenizer/model.safetensors")),
    *(text(file, "[" * 100_000) for file in (CONFIG, GENERATION, CODEC)),
    text("vocab.json", "{}"),
    text("vocab.json", '{"a": "b"}'),
    text(CONFIG, "{}"),
    text(CODEC, "{}"),
    *(field(GENERATION, "temperature", value) for value in ("hot", "0.9", -1, [0.9], {})),
    *(field(GENERATION, name, "many") for name in ("top_k", "top_p", "repetition_penalty", "max_new_tokens")),
    field(GENERATION, "subtalker_temperature", "hot"),
    *(field(CONFIG, f"{T}.num_hidden_layers", value) for value in ("2", 2.5, -1, None, [2], 10**9, 0)),
    *(field(CONFIG, f"{T}.{name}", 10**12) for name in ("hidden_size", "head_dim", "vocab_size", "text_hidden_size")),
    *(field(CONFIG, f"{T}.num_attention_heads", value) for value in (0, "8", 3)),
    *(field(CONFIG, f"{T}.rope_theta", value) for value in ("1e6", 0, -5, float("nan"), float("inf"))),
    *(field(CONFIG, f"{T}.rms_norm_eps", value) for value in ("x", float("nan"))),
    *(field(CONFIG, name, value) for name in (T, P, "speaker_encoder_config") for value in ([], "x", 5)),
    *(field(CONFIG, f"{P}.{name}", "x") for name in ("layer_types", "hidden_act", "vocab_size", "num_code_groups")),
    field(CONFIG, f"{T}.spk_id", ["vivian"]),
    field(CONFIG, f"{T}.codec_language_id", 5),
    *(field(CONFIG, "tts_model_type", value) for value in (["base"], "singer", None)),
    field(CONFIG, "tts_model_size", 6),
    field(CONFIG, "tokenizer_type", None),
    field(CONFIG, "quantization_config", {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    field(CODEC, D, []),
    field(CODEC, E, "x"),
    *(field(CODEC, f"{D}.{name}", value) for name in ("codebook_size", "hidden_size") for value in ("x", 10**12)),
    *(field(CODEC, f"{D}.upsample_rates", value) for value in ("x", [8, 5, 4, "3"], [10**9] * 4)),
    field(CODEC, f"{D}.sliding_window", 0),
    field(CODEC, f"{E}.num_quantizers", 10**8),
    text("merges.txt", "\ufffd"),
]


@pytest.mark.parametrize("damage", thinned([pytest.param(one, id=name) for name, one in DAMAGED], 5))
def test_a_damaged_file_is_a_sentence_that_names_the_checkpoint(mine, damage):
    damage(mine)
    with pytest.raises(ValueError, match=r"^checkpoint mine \S.+: \S.+") as error:
        load_model(mine)
    said = str(error.value)
    assert "\n" not in said and len(said) < 600
    assert any(
        advice in said for advice in ("download it again", "only 12 Hz models are supported", "undo the changes")
    )


FULL = [
    MemoryError("no room"),
    torch.cuda.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory"),
]


@pytest.mark.parametrize("error", FULL, ids=lambda error: type(error).__name__)
def test_full_memory_is_not_blamed_on_the_checkpoint(checkpoint, monkeypatch, error):
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(load, "read_tokenizer", fail)
    with pytest.raises(type(error)) as raised:
        load_model(checkpoint())
    assert raised.value is error and is_out_of_memory(error)


@pytest.mark.parametrize("error", [KeyError("a"), ImportError("protobuf\nis missing"), RuntimeError(), ValueError()])
def test_anything_else_is_named_with_its_kind(tmp_path, error):
    words = rf"^checkpoint mine cannot be loaded \({type(error).__name__}: .*\): "
    with pytest.raises(ValueError, match=words) as said, blame(tmp_path / "mine"):
        raise error
    assert said.value.__cause__ is error and "\n" not in str(said.value)


def test_interrupts_pass(tmp_path):
    with pytest.raises(KeyboardInterrupt), blame(tmp_path):
        raise KeyboardInterrupt


def test_a_config_of_upstreams_defaults_in_other_numbers_loads(mine):
    """Integers for floats, and null for defaults: published configs have them."""
    change_config(mine / CONFIG, f"{T}.rope_theta", 1000000)
    change_config(mine / CONFIG, f"{T}.sliding_window", None)
    change_config(mine / CODEC, f"{D}.rope_theta", 10000.0)
    config = json.loads((mine / CONFIG).read_text(encoding="utf-8"))
    (mine / CONFIG).write_text(json.dumps({**config, "a_field_of_tomorrow": {"a": [1]}}), encoding="utf-8")
    assert load_model(mine).speakers

"""A checkpoint whose weights are not those of its config never speaks: it is refused, and the tensors are named."""

import json
import logging
import re
import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from qwen3_tts_morph.morph import tested
from qwen3_tts_morph.morph.checkpoint import verify
from qwen3_tts_morph.morph.checkpoint.load import load_model
from safetensors.torch import load_file, save_file

from lab.upstream.package import default_rope_registered, import_qwen_tts

DOWN = "talker.model.layers.0.mlp.down_proj.weight"
CODEC = "speech_tokenizer"
LAYERS = "talker_config.num_hidden_layers"
RELEASE = tested.order(version("transformers"))


@pytest.fixture
def mine(checkpoint, tmp_path) -> Path:
    """A copy of a tiny CustomVoice checkpoint, to be changed."""
    return shutil.copytree(checkpoint("tiny", "custom_voice"), tmp_path / "mine")


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def change_config(file: Path, field: str, value: Any) -> None:
    """Set a field such as "talker_config.vocab_size"; a function gets the old value."""
    config = json.loads(file.read_text(encoding="utf-8"))
    part, (*path, last) = config, field.split(".")
    for name in path:
        part = part[name]
    part[last] = value(part[last]) if callable(value) else value
    file.write_text(json.dumps(config), encoding="utf-8")


def refused(path: Path, *words: str) -> None:
    with pytest.raises(ValueError) as error:
        load_model(path)
    said = str(error.value)
    assert said.startswith(f"checkpoint {path.name} cannot be loaded (") and "\n" not in said
    assert all(word in said for word in words), said


@pytest.mark.parametrize(("kind", "shape"), [("base", "tiny"), ("custom_voice", "tiny-1.7B"), ("voice_design", "tiny")])
def test_every_kind_of_checkpoint_is_accepted(checkpoint, shape, kind, caplog):
    with caplog.at_level(logging.INFO):
        load_model(checkpoint(shape, kind))
    assert ": not needed: " not in caplog.text


@pytest.mark.parametrize("name", [DOWN, "talker.codec_head.weight", "talker.code_predictor.lm_head.14.weight"])
def test_a_missing_tensor_is_named(mine, name):
    change_weights(mine, lambda tensors: tensors.pop(name))
    refused(mine, "config.json needs weights that the files lack: ", name)


def test_a_missing_tensor_of_the_codec_is_named(mine):
    name = next(name for name in load_file(mine / CODEC / "model.safetensors") if name.startswith("decoder."))
    change_weights(mine / CODEC, lambda tensors: tensors.pop(name))
    refused(mine, "speech_tokenizer/config.json needs weights", name)


def test_many_missing_tensors_are_counted(mine):
    change_weights(mine, lambda tensors: [tensors.pop(name) for name in list(tensors) if ".mlp." in name])
    refused(mine, "talker.model.layers.0.mlp.gate_proj.weight", " more)")


@pytest.mark.parametrize("name", [DOWN.replace("weight", "lora_A.default.weight"), "lora_unet_down.alpha"])
def test_an_adapter_that_is_not_merged_is_refused(mine, name):
    """It would speak as the base model, without a word."""
    change_weights(mine, lambda tensors: tensors.update({name: torch.zeros(2, 2)}))
    with pytest.raises(
        ValueError, match=rf"^checkpoint mine has weights of an adapter .*{re.escape(name)}.*: merge it"
    ) as error:
        load_model(mine)
    assert "download" not in str(error.value)


@pytest.mark.parametrize("table", ["spk_id", "codec_language_id"])
@pytest.mark.parametrize("value", ["null", "missing"])
def test_a_table_that_is_not_there_is_named(mine, table, value):
    change_config(mine / "config.json", "talker_config", lambda talker: without(talker, table, value))
    refused(mine, f"talker_config.{table} in config.json is {value}: write an object, {{}} for none")


def without(talker: dict[str, Any], table: str, value: str) -> dict[str, Any]:
    left = {name: one for name, one in talker.items() if name != table}
    return left if value == "missing" else {**left, table: None}


@pytest.mark.parametrize(
    ("file", "field", "words"),
    [
        ("config.json", LAYERS, "talker.model.layers."),
        (
            "config.json",
            "talker_config.code_predictor_config.num_hidden_layers",
            "talker.code_predictor.model.layers.",
        ),
        (f"{CODEC}/config.json", "decoder_config.num_hidden_layers", "decoder.pre_transformer.layers."),
    ],
)
@pytest.mark.parametrize("more", [1, -1])
def test_a_layer_too_many_or_too_few_is_refused(mine, file, field, words, more):
    change_config(mine / file, field, lambda count: count + more)
    if field.endswith("code_predictor_config.num_hidden_layers"):
        change_config(
            mine / file,
            "talker_config.code_predictor_config.layer_types",
            lambda types: (types + types[:1])[: len(types) + more],
        )
    refused(
        mine,
        words,
        "weights that the files lack" if more == 1 else "does not use weights that the files have",
    )


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (
            "talker_config.code_predictor_config.num_code_groups",
            8,
            "does not use weights that the files have: talker.code_predictor.lm_head.",
        ),
        (
            "talker_config.num_code_groups",
            8,
            "talker_config.num_code_groups in config.json is 8: it must be 16",
        ),
        ("talker_config.vocab_size", 5, "needs [5, "),
        ("talker_config.hidden_act", "gelu", "config.json has hidden_act 'gelu' and attention_bias False"),
        (
            "talker_config.code_predictor_config.attention_bias",
            True,
            "attention_bias True: only silu without",
        ),
        (
            "talker_config.code_predictor_config.layer_types",
            ["sliding_attention"],
            "layers of sliding attention: only full_attention",
        ),
        ("talker_config.text_vocab_size", 10**12, "needs [1000000000000, "),
        ("talker_config.hidden_size", 2**20, "talker.code_predictor.small_to_mtp_projection.weight"),
        ("talker_config.intermediate_size", 33, "needs ["),
        (
            "talker_config.spk_id",
            {"vivian": 999999},
            "spk_id of 'vivian' in config.json is 999999: the vocabulary has",
        ),
        ("talker_config.spk_id", {"vivian": -1}, "spk_id of 'vivian' in config.json is -1"),
        ("talker_config.spk_id", {"vivian": "5"}, "spk_id of 'vivian' in config.json is '5'"),
        ("talker_config.codec_language_id", {"english": 10**6}, "codec_language_id of 'english'"),
        ("talker_config.spk_is_dialect", {"eric": "klingon"}, "spk_is_dialect of 'eric' is 'klingon'"),
        ("talker_config.codec_eos_token_id", 10**6, "talker_config.codec_eos_token_id"),
        ("talker_config.codec_pad_id", 1.5, "talker_config.codec_pad_id"),
        ("tts_pad_token_id", 10**6, "tts_pad_token_id in config.json is 1000000: the vocabulary has 0 to"),
        ("im_start_token_id", 3, "the tokenizer does not know <|im_start|> as 3"),
    ],
)
def test_numbers_that_do_not_fit_the_weights_are_named(mine, field, value, words):
    change_config(mine / "config.json", field, value)
    refused(mine, words)


def test_a_codec_with_biases_is_refused(mine):
    change_config(mine / CODEC / "config.json", "decoder_config.attention_bias", True)
    refused(mine, "decoder_config has attention_bias True: the codec has False alone")


def test_a_codec_of_other_codes_is_refused(mine):
    change_config(mine / CODEC / "config.json", "decoder_config.num_quantizers", 15)
    refused(mine, "decoder_config.num_quantizers in speech_tokenizer/config.json is 15: it must be 16")


def test_a_tensor_of_another_shape_is_named(mine):
    change_weights(mine, lambda tensors: tensors.update({DOWN: tensors[DOWN][:, 1:].contiguous()}))
    refused(mine, f"{DOWN} has shape [", "its config needs [")


def test_quantised_weights_are_refused(mine):
    change_weights(mine, lambda tensors: tensors.update({DOWN: tensors[DOWN].to(torch.int8)}))
    refused(mine, f"{DOWN} is of type I8: only F64, F32, F16, BF16")


def test_a_tokenizer_larger_than_its_table_is_refused(mine):
    vocab = json.loads((mine / "vocab.json").read_text(encoding="utf-8"))
    (mine / "vocab.json").write_text(json.dumps({**vocab, "zzzz": 10**6}), encoding="utf-8")
    refused(mine, "the tokenizer has the id 1000000 and text_vocab_size in config.json is")


def test_tensors_that_nothing_needs_do_no_harm(mine, caplog):
    """As in a fine-tuned CustomVoice checkpoint that kept its speaker encoder, or a codec with more quantizers."""
    extra = {"speaker_encoder.fc.weight": torch.zeros(2, 2), "talker.rotary_emb.inv_freq": torch.zeros(4)}
    change_weights(mine, lambda tensors: tensors.update(extra))
    quantizer = "encoder.quantizer.acoustic_residual_vector_quantizer.layers.99.codebook.embed_sum"
    change_weights(mine / CODEC, lambda tensors: tensors.update({quantizer: torch.zeros(2, 2)}))
    with caplog.at_level(logging.INFO):
        assert load_model(mine).speakers
    assert "mine: not needed: " in caplog.text and quantizer in caplog.text


def test_weights_in_several_files_are_accepted(mine):
    tensors = load_file(mine / "model.safetensors")
    names = sorted(tensors)
    (mine / "model.safetensors").unlink()
    shards = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(names)}
    for shard in set(shards.values()):
        save_file({name: tensors[name] for name in names if shards[name] == shard}, mine / shard, {"format": "pt"})
    index = mine / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": shards}), encoding="utf-8")
    assert torch.equal(load_model(mine).network.state_dict()[names[0]], tensors[names[0]])
    save_file({names[0]: tensors[names[0]]}, mine / "model-1.safetensors", {"format": "pt"})
    refused(mine, "weights that the files lack: ", "talker.")


def test_nothing_is_built_from_a_damaged_config(mine, monkeypatch):
    def build(*_: Any, **__: Any) -> None:
        pytest.fail("a network was built")

    monkeypatch.setattr(verify, "Network", build)
    change_config(mine / "config.json", LAYERS, 10**9)
    refused(mine, f"{LAYERS} in config.json is 1000000000: it must be 0 to 1024")


@pytest.mark.skipif(
    (5, 0) <= RELEASE < (5, 15), reason="upstream cannot read what it writes with transformers before 5.15"
)
def test_configs_as_upstream_writes_them_are_accepted(mine):
    """With every field, defaults too, and the two names of the dtype that transformers has had."""
    core = import_qwen_tts().core
    speaker = json.loads((mine / "config.json").read_text(encoding="utf-8"))["speaker_encoder_config"]
    for folder, kind in ((mine, core.models.Qwen3TTSConfig), (mine / CODEC, core.Qwen3TTSTokenizerV2Config)):
        with default_rope_registered():
            kind.from_pretrained(str(folder)).save_pretrained(str(folder))
        change_config(folder / "config.json", "torch_dtype", "bfloat16")
        change_config(folder / "config.json", "transformers_version", "4.57.3")
    change_config(mine / "config.json", "speaker_encoder_config", speaker)  # upstream does not read what it writes
    assert len(json.loads((mine / "config.json").read_text(encoding="utf-8"))["talker_config"]) > 30
    assert load_model(mine).speakers

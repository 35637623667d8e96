"""LoRA adapters as peft writes them: what is read, and what is refused, with the reason."""

import json
import math
import re
import shutil
from pathlib import Path

import pytest
import torch
from qwen3_tts_morph.morph.checkpoint import adapter_file
from qwen3_tts_morph.morph.checkpoint.adapter_file import _of_layer, _patterns, read_adapter
from qwen3_tts_morph.morph.checkpoint.find import list_adapters
from qwen3_tts_morph.morph.options import check_strength
from safetensors.torch import load_file, save_file

from tests.morph.adapters import ALPHA, ATTENTION, OTHERS, PREDICTOR, RANK, change_config, write_adapter

PEFT = Path(__file__).resolve().parents[2] / "data" / "peft_lora"  # see record_peft.py
WEIGHTS = "adapter_model.safetensors"


@pytest.fixture
def mine(checkpoint, tmp_path) -> Path:
    return write_adapter(tmp_path / "mine", checkpoint())


def refused(folder: Path, sentence: str) -> None:
    with pytest.raises(ValueError) as error:
        read_adapter(folder)
    assert str(error.value).startswith(f"adapter {folder.name} cannot be used: ") and sentence in str(error.value)


def test_every_layer_is_read_with_the_scale_of_the_config(checkpoint, tmp_path):
    layers = (*ATTENTION, *PREDICTOR, *OTHERS)
    adapter = read_adapter(write_adapter(tmp_path / "mine", checkpoint(), layers))
    assert adapter.name == "mine" and adapter.trained_on == "Qwen/Base" and sorted(adapter.parts) == sorted(layers)
    assert {part.scale for part in adapter.parts.values()} == {ALPHA / RANK}


def test_ranks_and_alphas_may_differ_by_layer(checkpoint, tmp_path):
    one, other = ATTENTION[0], ATTENTION[1]
    patterns = {
        "rank_pattern": {"layers.0.self_attn.q_proj": 2},
        "alpha_pattern": {"proj": 1, rf"x|^{re.escape(other)}$": 6, "self_attn.k_proj": 1},
    }
    folder = write_adapter(tmp_path / "mine", checkpoint(), (one, other), {one: 2}, **patterns)
    parts = read_adapter(folder).parts
    assert parts[one].scale == ALPHA / 2 and parts[other].scale == 6 / RANK
    parts = read_adapter(change_config(folder, use_rslora=True)).parts
    assert parts[one].scale == ALPHA / math.sqrt(2) and parts[other].scale == 6 / math.sqrt(RANK)


def test_the_sum_is_what_peft_makes_of_it():
    """Recorded with peft itself: ``use_rslora``, ``rank_pattern`` and ``alpha_pattern``, talker and predictor."""
    adapter, recorded = read_adapter(PEFT), load_file(PEFT / "weights.safetensors")
    assert len(adapter.parts) == 3 and len(recorded) == 6
    for name, part in adapter.parts.items():
        before, after = (recorded[f"{when}.{name}.weight"] for when in ("before", "after"))
        assert not torch.allclose(before, after, atol=1e-2)
        torch.testing.assert_close(part.added_to(before, 1.0), after, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "pattern", ["q_proj", "0.self_attn.q_proj", r".*\.self_attn\.q_proj", "v_proj|q_proj$", "^q_proj", "j"]
)
def test_a_pattern_is_matched_as_peft_matches_it(pattern):
    """For layers of one name, too, as a training of a single layer writes them."""
    config = {"r": 1, "rank_pattern": {"k_proj": 3, pattern: 2, "q_proj|proj": 1}}
    for layer in (ATTENTION[0], "q_proj", "attn-q_proj"):
        found = re.match(rf"(.*\.)?({pattern})$", layer)  # peft.utils.other.get_pattern_key
        assert _of_layer(_patterns(config, "rank_pattern", "r"), layer) == (2 if found else 1)


def test_files_beyond_what_an_adapter_can_have_are_not_read(mine, monkeypatch):
    monkeypatch.setattr(adapter_file, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=rf"^adapter mine cannot be read \({WEIGHTS} is larger than 0 MB\)"):
        read_adapter(mine)


def test_the_digest_is_that_of_both_files(mine, tmp_path):
    first = read_adapter(mine).digest
    copied = shutil.copytree(mine, tmp_path / "copied")
    assert read_adapter(copied).digest == first
    assert read_adapter(change_config(copied, lora_alpha=1)).digest != first


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"peft_type": "LOHA"}, "it is of type 'LOHA': only LORA can be loaded; merge it"),
        ({"use_dora": True}, "it has DoRA (use_dora), which cannot be loaded: merge it"),
        ({"modules_to_save": ["codec_head"]}, "it has complete layers beside the adapter (modules_to_save)"),
        ({"bias": "all"}, "it has biases (bias is 'all'), which cannot be loaded: merge it"),
        ({"lora_bias": True}, "it has biases (lora_bias)"),
        ({"fan_in_fan_out": True}, "it has transposed weights (fan_in_fan_out)"),
        ({"trainable_token_indices": [1]}, "it has tokens that were trained"),
        (
            {"init_lora_weights": "pissa"},
            "it was begun with 'pissa', which changes the checkpoint's own weights",
        ),
        ({"r": 8}, "of rank 4 (A) and 4 (B), and adapter_config.json says 8"),
        ({"r": "8"}, "it has r '8' and lora_alpha 16 in adapter_config.json: both must be numbers"),
        ({"rank_pattern": {"(": 4}}, "it has '(' in rank_pattern: write names of layers"),
        ({"alpha_pattern": {"(.*)*X": 4}}, "it has '(.*)*X' in alpha_pattern: write names"),
        ({"rank_pattern": [4]}, "it has rank_pattern [4] in adapter_config.json: it must be an object"),
    ],
)
def test_what_is_no_plain_lora_is_refused(mine, fields, sentence):
    refused(change_config(mine, **fields), sentence)


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        (
            "base_model.model.talker.model.codec_embedding.lora_embedding_A",
            torch.zeros(4, 2),
            "not of a linear layer's",
        ),
        ("base_model.model.talker.codec_head.weight", torch.zeros(4, 2), "not of a linear layer's"),
        (
            f"base_model.model.{ATTENTION[0]}.lora_magnitude_vector",
            torch.zeros(64),
            "not of a linear layer's",
        ),
        (f"base_model.model.{ATTENTION[0]}.lora_A.weight", torch.full((4, 64), torch.nan), "not finite"),
        (f"base_model.model.{ATTENTION[0]}.lora_A.weight", torch.zeros(4, 64, 1), "shape [4, 64, 1]"),
        (
            f"base_model.model.{ATTENTION[0]}.lora_A.weight",
            torch.zeros(4, 64).to(torch.float8_e4m3fn),
            "of type torch.float8_e4m3fn: save it as float32",
        ),
        (
            "base_model.model.talker.codec_head.lora_A.weight",
            torch.zeros(4, 64),
            "it lacks lora_B of talker.codec_head",
        ),
    ],
)
def test_other_tensors_are_refused(mine, name, tensor, sentence):
    save_file(load_file(mine / WEIGHTS) | {name: tensor}, mine / WEIGHTS)
    refused(mine, sentence)


def test_missing_and_damaged_files_are_named(mine, tmp_path):
    refused(tmp_path / "gone", "its folder does not exist")
    content = (mine / WEIGHTS).read_bytes()
    (mine / WEIGHTS).write_bytes(content[:100])
    with pytest.raises(ValueError, match=r"^adapter mine cannot be read \(.*\): copy it again"):
        read_adapter(mine)
    save_file({}, mine / WEIGHTS)
    refused(mine, "it has no weights")
    (mine / WEIGHTS).unlink()
    refused(mine, f"it lacks {WEIGHTS}: copy the folder")
    (mine / "adapter_model.bin").write_bytes(b"\x80\x04.")
    refused(mine, "it has adapter_model.bin, a pickle, which is never read")
    (mine / "adapter_config.json").write_text("{", encoding="utf-8")
    (mine / WEIGHTS).write_bytes(content)
    refused(mine, "adapter_config.json is not JSON")


@pytest.mark.parametrize("strength", [5, -4.1, math.nan, "1", None])
def test_strengths_that_none_can_have_are_refused(strength):
    with pytest.raises(ValueError, match=r"^strength is .*: choose -4 to 4"):
        check_strength(strength)


def test_adapters_are_listed_with_their_folders(tmp_path):
    roots = [tmp_path / "qwen3-tts-loras", tmp_path / "loras"]
    places = [roots[0] / "anna", roots[1] / "qwen3" / "ben" / "checkpoint-100"]
    for place in (*places, roots[1] / "a" / "b" / "c" / "deep", places[0] / "checkpoint-1"):
        place.mkdir(parents=True)
        (place / "adapter_config.json").write_text(json.dumps({}), encoding="utf-8")
    (roots[1] / "flux.safetensors").write_bytes(b"")
    assert list_adapters([*roots, tmp_path / "gone"]) == {
        "loras/qwen3/ben/checkpoint-100": places[1],
        "qwen3-tts-loras/anna": places[0],
    }

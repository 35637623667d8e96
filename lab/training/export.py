"""Assemble a checkpoint in the published format from a trained talker and a finished codec.

    python -m lab.training.export --talker work/talker --codec work/codec --out voice

One folder serves both uses: a Base checkpoint with a speaker encoder whose config also lists preset speakers. A preset
is a row of group 0's embedding with a training voice's mean speaker embedding, so it sounds like a clone of that voice.
Upstream's wrapper requires tts_model_type "custom_voice" to speak with presets: load the same folder with
``Qwen3TTSModel.from_pretrained(path, tts_model_type="custom_voice")``, or write a CustomVoice copy, without the
speaker encoder, with ``--kind custom_voice``.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from qwen3_tts_morph.morph.checkpoint.profile import FILE as PROFILE_FILE
from safetensors.torch import save_file

from .talker.checkpoint import load_weights
from .talker.config import DEFAULT, GROUPS, Layers, Shape, load_config
from .talker.published import ENCODER
from .talker.speaker import encoder_config
from .talker.tokenizer import TextTokens, copy_tokenizer

KINDS = ("base", "custom_voice")
SIZE = "0b02"  # upstream's tts_model_size: voice files of the published sizes do not fit this model
FIRST_TABLE = "talker.model.codec_embedding.weight"
# How the pack should speak with a voice of this size, see morph/checkpoint/profile.py.
PROFILE = {"longest_piece": 100, "normalize": "en", "hold_end": True}
MOST_MEGABYTES = 64


@dataclass(frozen=True)
class ExportOptions:
    """What to write besides the weights.

    Args:
        presets: name of a preset -> the training voice it speaks with.
        sampling: content of generation_config.json.
        kind: "base" or "custom_voice".
        dtype: of the talker's weights.
    """

    presets: Mapping[str, str]
    sampling: Mapping[str, Any]
    kind: str = "base"
    dtype: torch.dtype = torch.bfloat16

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}: choose one of {', '.join(KINDS)}")


def export(talker: Path, codec: Path, out: Path, options: ExportOptions) -> int:
    """Write the checkpoint; return its size in bytes.

    Args:
        talker: output folder of ``lab.training.talker.train`` (``weights/`` and ``tokenizer/``).
        codec: a ``speech_tokenizer`` folder.
        out: output folder; files of an older checkpoint are replaced.
        options: presets, sampling, kind and dtype.

    Raises:
        ValueError: an unknown voice, or a codec with another codebook.
    """
    weights, about, shape = load_weights(talker / "weights")
    _check_codec(codec, shape)
    voices = weights.pop("voices").float()
    weights[FIRST_TABLE] = weights[FIRST_TABLE].clone()
    for index, (name, voice) in enumerate(options.presets.items()):
        if voice not in about["voices"]:
            raise ValueError(f"preset {name!r} is voice {voice!r}, which the talker was not trained on")
        weights[FIRST_TABLE][shape.preset_id(index)] = voices[about["voices"].index(voice)].to(
            weights[FIRST_TABLE].dtype
        )
    if options.kind != "base":
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith(ENCODER)}
    copy_tokenizer(talker / "tokenizer", out)
    tokens = TextTokens(out)
    config = checkpoint_config(shape, tokens, list(options.presets), options.kind)
    _write(out / "config.json", {**config, "dtype": str(options.dtype).removeprefix("torch.")})
    _write(out / "generation_config.json", dict(options.sampling))
    _write(out / PROFILE_FILE, PROFILE)
    save_file(
        {name: tensor.to(options.dtype).contiguous() for name, tensor in weights.items()},
        out / "model.safetensors",
        metadata={"format": "pt"},
    )
    shutil.copytree(codec, out / "speech_tokenizer", dirs_exist_ok=True)
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def checkpoint_config(shape: Shape, tokens: TextTokens, presets: list[str], kind: str) -> dict[str, Any]:
    """Return config.json, without the dtype."""
    special = tokens.special
    return {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "talker_config": _talker_config(shape, presets),
        "speaker_encoder_config": encoder_config(shape),
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": SIZE,
        "tts_model_type": kind,
        "im_start_token_id": special["<|im_start|>"],
        "im_end_token_id": special["<|im_end|>"],
        "tts_pad_token_id": special["<tts_pad>"],
        "tts_bos_token_id": special["<tts_text_bos>"],
        "tts_eos_token_id": special["<tts_text_eod>"],
    }


def _layers(layers: Layers) -> dict[str, Any]:
    return {
        "hidden_size": layers.hidden,
        "intermediate_size": layers.inner,
        "num_hidden_layers": layers.depth,
        "num_attention_heads": layers.heads,
        "num_key_value_heads": layers.kv_heads,
        "head_dim": layers.head_dim,
    }


def _talker_config(shape: Shape, presets: list[str]) -> dict[str, Any]:
    codec = shape.codec_ids()
    # The three rows of positions are equal for speech: any sections that fill half a head are plain RoPE.
    third = shape.talker.head_dim // 2 // 3
    sections = [shape.talker.head_dim // 2 - 2 * third, third, third]
    predictor = {
        **_layers(shape.predictor),
        "vocab_size": shape.codebook,
        "num_code_groups": GROUPS,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": 65536,
        "layer_types": ["full_attention"] * shape.predictor.depth,
    }
    return {
        **_layers(shape.talker),
        "vocab_size": shape.first_vocab,
        "text_vocab_size": shape.text_vocab,
        "text_hidden_size": shape.text_hidden,
        "num_code_groups": GROUPS,
        "rope_theta": shape.rope_theta,
        "rope_scaling": {"interleaved": True, "mrope_section": sections, "rope_type": "default"},
        "max_position_embeddings": 32768,
        "code_predictor_config": predictor,
        "codec_pad_id": codec["pad"],
        "codec_bos_id": codec["bos"],
        "codec_eos_token_id": codec["eos"],
        "codec_think_id": codec["think"],
        "codec_nothink_id": codec["nothink"],
        "codec_think_bos_id": codec["think_bos"],
        "codec_think_eos_id": codec["think_eos"],
        "codec_language_id": {"english": codec["english"]},
        "spk_id": {name: shape.preset_id(index) for index, name in enumerate(presets)},
        "spk_is_dialect": dict.fromkeys(presets, False),
    }


def _check_codec(codec: Path, shape: Shape) -> None:
    config = json.loads((codec / "config.json").read_text(encoding="utf-8"))
    codebook = config["decoder_config"]["codebook_size"]
    if codebook != shape.codebook:
        raise ValueError(
            f"codec {codec} has codebooks of {codebook}, but the talker was trained on {shape.codebook}: "
            "use the codec that encoded its corpus"
        )


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--talker", type=Path, required=True, help="output folder of lab.training.talker.train"
    )
    parser.add_argument("--codec", type=Path, required=True, help="a speech_tokenizer folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kind", default="base", choices=KINDS)
    parser.add_argument(
        "--config", type=Path, default=DEFAULT, help="config with the presets and the sampling"
    )
    given = parser.parse_args()
    config = load_config(given.config)
    options = ExportOptions(config.presets, config.sampling, given.kind)
    size = export(given.talker, given.codec, given.out, options)
    print(f"{given.out}: {size / 1e6:.1f} MB, presets {', '.join(config.presets) or 'none'}")
    if size > MOST_MEGABYTES * 1e6:
        raise SystemExit(f"larger than {MOST_MEGABYTES} MB: make the shapes in talker.json smaller")


if __name__ == "__main__":
    main()

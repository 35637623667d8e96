"""What a training may start from: an earlier training's folder, or an exported checkpoint such as ``demo_voice``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from .checkpoint import load_weights
from .config import Layers, Shape
from .published import ENCODER

MODEL = "model.safetensors"  # only a checkpoint has this file


def tokenizer_of(folder: Path) -> Path:
    """Return the folder of the tokenizer's files."""
    return folder if (folder / MODEL).is_file() else folder / "tokenizer"


def read_start(folder: Path) -> tuple[dict[str, torch.Tensor], Shape]:
    """Return the weights of talker, predictor and speaker encoder under upstream's names, and their shape.

    Raises:
        ValueError: a checkpoint without a speaker encoder, or a missing part of an earlier training's weights.
    """
    if not (folder / MODEL).is_file():
        weights, _, shape = load_weights(folder / "weights")
        return weights, shape
    weights = load_file(folder / MODEL)
    if not any(name.startswith(ENCODER) for name in weights):
        raise ValueError(f"{folder} has no speaker encoder: choose a Base checkpoint")
    return weights, published_shape(json.loads((folder / "config.json").read_text(encoding="utf-8")))


def published_shape(config: Mapping[str, Any]) -> Shape:
    """Return the shape that a checkpoint's config.json describes."""
    talker, encoder = config["talker_config"], config["speaker_encoder_config"]
    predictor = talker["code_predictor_config"]
    return Shape(
        talker=_layers(talker),
        predictor=_layers(predictor),
        codebook=predictor["vocab_size"],
        text_vocab=talker["text_vocab_size"],
        text_hidden=talker["text_hidden_size"],
        encoder_channels=tuple(encoder["enc_channels"]),
        encoder_scale=encoder["enc_res2net_scale"],
        encoder_attention=encoder["enc_attention_channels"],
        rope_theta=talker["rope_theta"],
    )


def _layers(values: Mapping[str, Any]) -> Layers:
    return Layers(
        hidden=values["hidden_size"],
        inner=values["intermediate_size"],
        depth=values["num_hidden_layers"],
        heads=values["num_attention_heads"],
        kv_heads=values["num_key_value_heads"],
        head_dim=values["head_dim"],
    )

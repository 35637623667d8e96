"""Random weights of a frame in any shape, without a checkpoint, for the kernels' tests and benchmarks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from qwen3_tts_morph.morph.frame.buffers import Buffers
from qwen3_tts_morph.morph.frame.sampling import line_keys
from qwen3_tts_morph.morph.frame.weights import Weights
from qwen3_tts_morph.morph.model.layers import Layer, LayerStack
from qwen3_tts_morph.morph.model.weights import Weight, quantize
from qwen3_tts_morph.morph.options import Sampling

import pack

from .. import random_checkpoint

GROUPS = 16


@dataclass(frozen=True)
class Stack:
    """The shape of a stack of layers."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int


@dataclass(frozen=True)
class FrameShape:
    """The shapes of talker and predictor, and the sizes of their vocabularies."""

    talker: Stack
    predictor: Stack
    vocab: int
    codebook: int


def _stack(config: Mapping[str, Any]) -> Stack:
    return Stack(*(config[name] for name in random_checkpoint.LAYER_SIZES))


def _published(name: str) -> FrameShape:
    """Return the shape of a published checkpoint."""
    shape = random_checkpoint.SHAPES[name]
    talker, predictor = _stack(shape.talker), _stack(shape.predictor)
    return FrameShape(talker, predictor, shape.codebook + 1024, shape.codebook)


def _demo() -> FrameShape:
    """Return the shape of the voice included in the pack."""
    config = json.loads((pack.ROOT / "demo_voice" / "config.json").read_text(encoding="utf-8"))["talker_config"]
    predictor = config["code_predictor_config"]
    return FrameShape(_stack(config), _stack(predictor), config["vocab_size"], predictor["vocab_size"])


SHAPES = {
    "0.6B": _published("0.6B"),
    "1.7B": _published("1.7B"),
    "demo": _demo(),
    # Tiny shapes for tests; their codebooks are larger than a tiny checkpoint's, to fill more than one kernel block.
    "tiny": FrameShape(Stack(64, 96, 2, 4, 2, 16), Stack(64, 96, 2, 4, 2, 16), 1152, 128),
    "tiny-1.7B": FrameShape(Stack(96, 128, 2, 4, 2, 16), Stack(64, 96, 2, 4, 2, 16), 1152, 128),
}


def _normal(device: torch.device, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Return weights that preserve a state's magnitude: standard deviation 1 / sqrt(columns)."""
    return (torch.randn(*shape, device=device) * shape[-1] ** -0.5).to(dtype)


def _gain(device: torch.device, dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return (1 + 0.1 * torch.randn(*shape, device=device)).to(dtype)


def random_decoder(shape: Stack, device: torch.device, dtype: torch.dtype) -> LayerStack:
    """Return a stack of random layers."""
    projected = shape.heads * shape.head_dim
    qkv = projected + 2 * shape.kv_heads * shape.head_dim
    return LayerStack(
        layers=tuple(
            Layer(
                input_norm=_gain(device, dtype, shape.hidden),
                qkv=_normal(device, dtype, qkv, shape.hidden),
                out=_normal(device, dtype, shape.hidden, projected),
                post_norm=_gain(device, dtype, shape.hidden),
                gate_up=_normal(device, dtype, 2 * shape.intermediate, shape.hidden),
                down=_normal(device, dtype, shape.hidden, shape.intermediate),
            )
            for _ in range(shape.layers)
        ),
        qk_norms=_gain(device, dtype, shape.layers, 2, shape.head_dim),
        norm=_gain(device, dtype, shape.hidden),
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        eps=1e-6,
    )


def random_weights(shape: FrameShape, device: torch.device, dtype: torch.dtype) -> Weights:
    """Return all weights of a frame."""
    width, narrow = shape.talker.hidden, shape.predictor.hidden
    projection = None
    if width != narrow:
        projection = (_normal(device, dtype, narrow, width), 0.1 * _normal(device, dtype, narrow))
    return Weights(
        talker=random_decoder(shape.talker, device, dtype),
        predictor=random_decoder(shape.predictor, device, dtype),
        first_table=torch.randn(shape.vocab, width, device=device).to(dtype),
        first_head=3 * _normal(device, dtype, shape.vocab, width),
        tables=torch.randn(GROUPS - 1, shape.codebook, width, device=device).to(dtype),
        heads=3 * _normal(device, dtype, GROUPS - 1, shape.codebook, narrow),
        projection=projection,
    )


def config_of(shape: FrameShape) -> Any:
    """Return the part of a talker's config that ``Buffers.allocate`` reads."""
    rope = {"rope_theta": 1000000.0, "rope_scaling": None}
    predictor = SimpleNamespace(head_dim=shape.predictor.head_dim, vocab_size=shape.codebook, **rope)
    return SimpleNamespace(
        hidden_size=shape.talker.hidden,
        vocab_size=shape.vocab,
        num_code_groups=GROUPS,
        codec_eos_token_id=shape.codebook + 102,
        head_dim=shape.talker.head_dim,
        code_predictor_config=predictor,
        **rope,
    )


def unquantized(weight: Weight) -> torch.Tensor:
    """Return a weight that ``random_weights`` made: none of them is INT8."""
    assert isinstance(weight, torch.Tensor)
    return weight


def quantize_weights(weights: Weights) -> Weights:
    """Return the same weights in INT8, in the layers that a model quantizes."""

    def decoder(one: LayerStack) -> LayerStack:
        return replace(one, layers=tuple(quantize_layer(layer) for layer in one.layers))

    def quantize_layer(layer: Layer) -> Layer:
        qkv, out, gate_up, down = (
            quantize(unquantized(weight)) for weight in (layer.qkv, layer.out, layer.gate_up, layer.down)
        )
        return replace(layer, qkv=qkv, out=out, gate_up=gate_up, down=down)

    talker, predictor = decoder(weights.talker), decoder(weights.predictor)
    return replace(weights, talker=talker, predictor=predictor, heads=quantize(unquantized(weights.heads)))


def random_slots(
    shape: FrameShape, weights: Weights, batch: int, context: int, positions: list[int], sampling: Sampling
) -> Buffers:
    """Return buffers in the middle of their lines: random caches up to each line's position, seeds 0 onwards.

    ``positions`` has one position per line of the batch. The parameters are independent, hence their number.
    """
    slots = Buffers.allocate(config_of(shape), weights.talker, weights.predictor, batch, context)
    state = slots.state
    state.keys.copy_(line_keys(range(batch)))
    slots.put(sampling)
    state.tokens.copy_(torch.arange(batch) % shape.codebook)
    state.hidden.normal_()
    slots.text.normal_()
    state.positions.copy_(torch.tensor(positions))
    state.steps.copy_(torch.arange(batch))
    for line, position in enumerate(positions):
        slots.cache.keys[:, line, :, :position].normal_()
        slots.cache.values[:, line, :, :position].normal_()
    return slots

"""Upstream's encoder and decoder on crops of whole frames, without the parts that are slow in training.

Mimi's convolutions read their padding from tensors, which synchronises with the GPU each time; both sides copy every
input to pad it; SnakeBeta takes six passes over memory. On whole frames the padding is known, a convolution can pad by
itself, and SnakeBeta can be fused. Weights and results are those of upstream's modules (checked by tests).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .config import SAMPLES_PER_FRAME

EPSILON = 1e-9  # SnakeBeta's


def snake(x: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """Compute SnakeBeta, ``x + sin(e^alpha x)^2 / e^beta``, for x ``[B, C, 1, T]``, alpha and beta ``[C]``."""
    frequency = alpha.exp()[:, None, None]
    scale = 1 / (beta.exp()[:, None, None] + EPSILON)
    wide = x.float()
    return (wide + scale * torch.sin(wide * frequency).square()).to(x.dtype)


def causal_conv(conv: nn.Conv1d, x: torch.Tensor, replicate: bool = False) -> torch.Tensor:
    """Causal convolution of ``[B, C, 1, T]``, where the stride divides T."""
    stride, dilation = conv.stride[0], conv.dilation[0]
    padding = (conv.kernel_size[0] - 1) * dilation + 1 - stride
    frames = x.shape[-1] // stride
    if replicate:
        x = torch.cat((x[..., :1].expand(-1, -1, -1, padding), x), dim=-1)
        padding = 0
    # Padding both sides costs no copy; the outputs of the right side are cut off.
    x = functional.conv2d(
        x, conv.weight.unsqueeze(2), conv.bias, (1, stride), (0, padding), (1, dilation), conv.groups
    )
    return x[..., :frames]


def causal_transpose(conv: nn.ConvTranspose1d, x: torch.Tensor) -> torch.Tensor:
    """Transposed convolution of ``[B, C, 1, T]``, cut to T times its stride."""
    stride = conv.stride[0]
    return functional.conv_transpose2d(x, conv.weight.unsqueeze(2), conv.bias, (1, stride))[
        ..., : x.shape[-1] * stride
    ]


def causal_mask(frames: int, window: int, device: torch.device) -> torch.Tensor:
    """Return a bool mask ``[1, 1, frames, frames]``: a frame sees itself and ``window - 1`` frames before it."""
    index = torch.arange(frames, device=device)
    distance = index[:, None] - index[None, :]
    return ((distance >= 0) & (distance < window))[None, None]


def rotate(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotate ``[B, heads, frames, dim]`` by angles ``[frames, dim / 2]``, a vector's halves against each other."""
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


def transform(module: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Run upstream's ``pre_transformer`` on ``[B, frames, latent]``, whatever transformers wraps around its forward."""
    hidden = module.input_proj(hidden)
    frames = hidden.shape[1]
    mask = causal_mask(frames, module.window_size, hidden.device)
    places = torch.arange(frames, device=hidden.device, dtype=torch.float32)
    angles = places[:, None] * module.rotary_emb.inv_freq.float()
    for layer in module.layers:
        attended = attend(layer.self_attn, layer.input_layernorm(hidden), mask, angles)
        hidden = hidden + layer.self_attn_layer_scale(attended)
        hidden = hidden + layer.mlp_layer_scale(layer.mlp(layer.post_attention_layernorm(hidden)))
    return module.output_proj(module.norm(hidden))


def attend(layer: Any, hidden: torch.Tensor, mask: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Run one layer's attention on ``[B, frames, hidden]``; as many key heads as query heads."""
    heads = [
        project(hidden).unflatten(-1, (-1, layer.head_dim)).transpose(1, 2)
        for project in (layer.q_proj, layer.k_proj, layer.v_proj)
    ]
    query, key = (rotate(part, angles) for part in heads[:2])
    found = functional.scaled_dot_product_attention(query, key, heads[2], attn_mask=mask, scale=layer.scaling)
    return layer.o_proj(found.transpose(1, 2).flatten(2))


class CropForward:
    """Encodes and decodes crops with the weights of an upstream codec (float32 or under autocast)."""

    def __init__(self, model: Any, fast: bool = False):
        self.model = model
        self.snake = torch.compile(snake, dynamic=True) if fast else snake
        self.layout = torch.channels_last if fast else torch.contiguous_format

    def encode(self, wave: torch.Tensor) -> torch.Tensor:
        """Encode crops ``[B, T]`` to ``[B, hidden, T / 1920]``, the input of the quantiser's projections."""
        if wave.shape[-1] % SAMPLES_PER_FRAME:
            raise ValueError(
                f"{wave.shape[-1]} samples: crops must be whole frames of {SAMPLES_PER_FRAME} samples"
            )
        mimi = self.model.encoder
        x = causal_conv(mimi.encoder.layers[0].conv, wave[:, None, None]).contiguous(
            memory_format=self.layout
        )
        for layer in mimi.encoder.layers[1:]:
            x = self._encoder_layer(layer, x)
        hidden = x.squeeze(2).transpose(1, 2)
        mask = causal_mask(hidden.shape[1], hidden.shape[1], hidden.device)
        hidden = mimi.encoder_transformer(hidden, attention_mask=mask)[0]
        return causal_conv(mimi.downsample.conv, hidden.transpose(1, 2).unsqueeze(2), replicate=True).squeeze(
            2
        )

    def _encoder_layer(self, layer: Any, x: torch.Tensor) -> torch.Tensor:
        if isinstance(layer, nn.ELU):
            return layer(x)
        if not hasattr(layer, "block"):
            return causal_conv(layer.conv, x)
        hidden = x
        for part in layer.block:
            hidden = part(hidden) if isinstance(part, nn.ELU) else causal_conv(part.conv, hidden)
        return x + hidden

    def decode(self, latent: torch.Tensor) -> torch.Tensor:
        """Decode dequantised frames ``[B, 2 * code_dim, frames]`` to ``[B, 1920 * frames]``, not clamped."""
        return self.to_wave(self.to_features(latent))

    def to_features(self, latent: torch.Tensor) -> torch.Tensor:
        """Run the decoder's slow layers on ``[B, 2 * code_dim, frames]``: ``[B, latent_dim, 4 * frames]``."""
        decoder = self.model.decoder
        hidden = transform(decoder.pre_transformer, decoder.pre_conv(latent).transpose(1, 2)).transpose(1, 2)
        for blocks in decoder.upsample:
            for block in blocks:
                hidden = block(hidden)
        return hidden

    def to_wave(self, features: torch.Tensor) -> torch.Tensor:
        """Run the decoder's fast layers on ``[B, latent_dim, T / 480]``: ``[B, T]``, not clamped."""
        decoder = self.model.decoder
        x = causal_conv(decoder.decoder[0].conv, features.unsqueeze(2).contiguous(memory_format=self.layout))
        for block in decoder.decoder[1:-2]:
            x = self._decoder_block(block, x)
        x = self._activate(decoder.decoder[-2], x)
        return causal_conv(decoder.decoder[-1].conv, x)[:, 0, 0]

    def _decoder_block(self, block: Any, x: torch.Tensor) -> torch.Tensor:
        activation, upsample, *units = block.block
        x = causal_transpose(upsample.conv, self._activate(activation, x))
        for unit in units:
            hidden = causal_conv(unit.conv1.conv, self._activate(unit.act1, x))
            x = x + causal_conv(unit.conv2.conv, self._activate(unit.act2, hidden))
        return x

    def _activate(self, activation: Any, x: torch.Tensor) -> torch.Tensor:
        return self.snake(x, activation.alpha, activation.beta)

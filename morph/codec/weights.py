"""The weights of the codec's decoder in the layout that ``forward.py`` reads: views of the parameters of ``modules``.

Convolutions run over rows ``[T, C]`` (channels innermost), which needs weights ``[out, taps, in]``. Upstream's
parameters are moved to storage in that order: they stay the same objects with the same shapes and values, and nothing
is stored twice. Derived tensors (SnakeBeta's constants, normalised codebooks) are small.

SnakeBeta adds the biases of the convolutions before it in registers; along a chain of residual units they accumulate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from operator import mul
from typing import Any

import torch

from ..model.layers import Angles
from ..model.weights.joined_weights import join
from .layers import CODEBOOK_EPSILON
from .packing import CHUNK_FRAMES, CONTEXT_FRAMES

EPSILON = 1e-9  # SnakeBeta's


@dataclass(frozen=True)
class Snake:
    """SnakeBeta of ``x + bias``; all float32 ``[C]``."""

    turns: torch.Tensor  # e^alpha / pi
    scale: torch.Tensor  # 1 / (e^beta + 1e-9)
    bias: torch.Tensor

    @classmethod
    def of(cls, module: Any, bias: torch.Tensor) -> Snake:
        alpha, beta = module.alpha.detach().float(), module.beta.detach().float()
        return cls(alpha.exp() / math.pi, 1 / (beta.exp() + EPSILON), bias)


@dataclass(frozen=True)
class Attention:
    """A layer of the transformer: fused projections, norms, and the scales of its residuals."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    out: torch.Tensor
    out_scale: torch.Tensor
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    down_scale: torch.Tensor


@dataclass(frozen=True)
class Transformer:
    """The codec's transformer; pairs are (weight, bias)."""

    project: tuple[torch.Tensor, torch.Tensor]  # into its width
    layers: tuple[Attention, ...]
    norm: torch.Tensor
    restore: tuple[torch.Tensor, torch.Tensor]  # out of its width
    angles: Angles
    heads: int
    kv_heads: int
    window: int
    eps: float


@dataclass(frozen=True)
class Upsample:
    """A transposed convolution whose kernel is its stride, ``[factor C, C]``, and a ConvNeXt block."""

    expand: tuple[torch.Tensor, torch.Tensor]
    factor: int
    depthwise: tuple[torch.Tensor, torch.Tensor]
    norm: tuple[torch.Tensor, torch.Tensor]
    inner: tuple[torch.Tensor, torch.Tensor]
    outer: tuple[torch.Tensor, torch.Tensor]
    gamma: torch.Tensor


@dataclass(frozen=True)
class Unit:
    """A residual unit: SnakeBeta, ``conv`` ``[C, taps, C]`` with a dilation, SnakeBeta, ``point`` ``[C, C]``."""

    first: Snake
    conv: torch.Tensor
    dilation: int
    second: Snake
    point: torch.Tensor


@dataclass(frozen=True)
class Block:
    """A transposed convolution of kernel 2 x stride as two GEMMs, three units, and the SnakeBeta after them."""

    now: torch.Tensor  # ``[rate C_out, C_in]``: a position's part of its own outputs
    before: torch.Tensor  # the same of the next position's outputs
    rate: int
    units: tuple[Unit, ...]
    after: Snake


@dataclass(frozen=True)
class CodecWeights:
    """All weights of the codec's decoder, which turns codes into samples."""

    codebooks: torch.Tensor  # ``[groups V, D]``
    offsets: torch.Tensor
    first_groups: int
    quantised: torch.Tensor  # ``[2 D, 2 D]``, the projections of both halves
    pre_conv: tuple[torch.Tensor, torch.Tensor]
    transformer: Transformer
    upsample: tuple[Upsample, ...]
    start: torch.Tensor
    enter: Snake
    blocks: tuple[Block, ...]
    finish: tuple[torch.Tensor, torch.Tensor]
    samples_per_frame: int
    gap: int  # zero frames that replace the padding of every convolution
    reaches: tuple[int, ...]  # for each block, past frames that affect it and all after it
    context: int  # past outputs of the transformer that affect a frame

    @classmethod
    def of(cls, decoder: Any) -> CodecWeights:
        """View a ``Qwen3TTSTokenizerV2Decoder``; ValueError for one that the codec engine does not implement."""
        check_decoder(decoder)
        dtype = decoder.pre_conv.conv.weight.dtype
        with torch.inference_mode(False), torch.no_grad():
            codebooks, count = _codebooks(decoder.quantizer, dtype)
            start, *blocks, last_snake, last = decoder.decoder
            enter, viewed = _blocks(blocks, last_snake, start.conv.bias, dtype)
            return cls(
                codebooks=codebooks,
                offsets=torch.arange(count, device=codebooks.device) * (len(codebooks) // count),
                first_groups=decoder.quantizer.n_q_semantic,
                quantised=_joint_projection(decoder.quantizer, dtype),
                pre_conv=_conv(decoder.pre_conv, dtype),
                transformer=_transformer(decoder.pre_transformer, dtype),
                upsample=tuple(_upsample(expand, block, dtype) for expand, block in decoder.upsample),
                start=arrange(start.conv.weight, (0, 2, 1), dtype),
                enter=enter,
                blocks=viewed,
                finish=(
                    arrange(last.conv.weight, (0, 2, 1), torch.float32)[0],
                    last.conv.bias.detach().float(),
                ),
                samples_per_frame=int(decoder.total_upsample),
                gap=widest_padding(decoder),
                reaches=reaches_of(decoder),
                context=context_of(decoder),
            )


def check_decoder(decoder: Any) -> None:
    """Raise ValueError for configs that upstream's classes allow but no published checkpoint uses."""
    config = decoder.config
    if config.hidden_act != "silu" or config.attention_bias:
        raise ValueError(
            f"the codec's config has hidden_act {config.hidden_act!r} and attention_bias {config.attention_bias}: "
            "the codec engine computes silu without biases"
        )


def arrange(weight: torch.nn.Parameter, order: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return a contiguous view of the weight with permuted axes; moves the parameter's storage if necessary."""
    view = weight.detach().permute(order)
    if weight.dtype != dtype:
        return view.to(dtype).contiguous()
    if not view.is_contiguous():
        view = view.contiguous()
        weight.data = view.permute([order.index(axis) for axis in range(len(order))])
    return view


def widest_padding(decoder: Any) -> int:
    """Return how many frames cover the left padding of every convolution, each at its own rate."""
    rate, padded = 1, [(1, decoder.pre_conv)]
    for expand, block in decoder.upsample:
        rate *= expand.conv.stride[0]
        padded.append((rate, block.dwconv))
    padded.append((rate, decoder.decoder[0]))
    for rate, block in zip(_rates(decoder), decoder.decoder[1:-2], strict=True):
        padded += [(rate, unit.conv1) for unit in block.block[2:]]
    padded.append((rate, decoder.decoder[-1]))
    return max(math.ceil(conv.padding / rate) for rate, conv in padded)


def reaches_of(decoder: Any) -> tuple[int, ...]:
    """Return, for each block, how many past frames affect the samples through it and the blocks after it."""
    return tuple(math.ceil(reach) for reach in _reaches(decoder))


def context_of(decoder: Any) -> int:
    """Return how many past outputs of the transformer affect a frame's samples, through all convolutions after it."""
    rates = list(accumulate((expand.conv.stride[0] for expand, _ in decoder.upsample), mul))
    padded = [(block.dwconv.padding, rate) for (_, block), rate in zip(decoder.upsample, rates, strict=True)]
    padded.append((decoder.decoder[0].padding, rates[-1]))
    return math.ceil(_reaches(decoder)[0] + sum(Fraction(positions, rate) for positions, rate in padded))


def _reaches(decoder: Any) -> list[Fraction]:
    reach = Fraction(decoder.decoder[-1].padding, int(decoder.total_upsample))
    reaches = []
    for rate, block in reversed(list(zip(_rates(decoder), decoder.decoder[1:-2], strict=True))):
        before = block.block[1].conv.stride[0]  # one position before the transposed convolution
        reach += Fraction(sum(unit.conv1.padding for unit in block.block[2:]) + before, rate)
        reaches.append(reach)
    return reaches[::-1]


def _rates(decoder: Any) -> list[int]:
    rate = math.prod(expand.conv.stride[0] for expand, _ in decoder.upsample)
    return [rate := rate * block.block[1].conv.stride[0] for block in decoder.decoder[1:-2]]


def _codebooks(quantizer: Any, dtype: torch.dtype) -> tuple[torch.Tensor, int]:
    books = [one._codebook for part in (quantizer.rvq_first, quantizer.rvq_rest) for one in part.vq.layers]
    vectors = [
        (book.embedding_sum.float() / book.cluster_usage.float().clamp(min=CODEBOOK_EPSILON)[:, None]).to(
            dtype
        )
        for book in books
    ]
    return torch.cat(vectors), len(vectors)


def _joint_projection(quantizer: Any, dtype: torch.dtype) -> torch.Tensor:
    """Concatenate both output projections: their results are added, so one GEMM over both inputs computes the sum."""
    parts = (quantizer.rvq_first.output_proj, quantizer.rvq_rest.output_proj)
    return torch.cat([part.weight.detach()[..., 0] for part in parts], dim=1).to(dtype)


def _pair(module: Any, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return module.weight.detach().to(dtype), module.bias.detach().to(dtype)


def _conv(module: Any, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return arrange(module.conv.weight, (0, 2, 1), dtype), module.conv.bias.detach().to(dtype)


def _transformer(module: Any, dtype: torch.dtype) -> Transformer:
    config = module.config
    longest = CHUNK_FRAMES + 2 * CONTEXT_FRAMES
    device = module.input_proj.weight.device
    return Transformer(
        project=_pair(module.input_proj, dtype),
        layers=tuple(_attention(layer, dtype) for layer in module.layers),
        norm=module.norm.weight.detach().to(dtype),
        restore=_pair(module.output_proj, dtype),
        angles=Angles.table(config, longest, device),
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        window=config.sliding_window,
        eps=config.rms_norm_eps,
    )


def _attention(layer: Any, dtype: torch.dtype) -> Attention:
    attention, mlp = layer.self_attn, layer.mlp
    return Attention(
        input_norm=layer.input_layernorm.weight.detach().to(dtype),
        qkv=join([attention.q_proj, attention.k_proj, attention.v_proj]).to(dtype),
        out=attention.o_proj.weight.detach().to(dtype),
        out_scale=layer.self_attn_layer_scale.scale.detach().to(dtype),
        post_norm=layer.post_attention_layernorm.weight.detach().to(dtype),
        gate_up=join([mlp.gate_proj, mlp.up_proj]).to(dtype),
        down=mlp.down_proj.weight.detach().to(dtype),
        down_scale=layer.mlp_layer_scale.scale.detach().to(dtype),
    )


def _upsample(expand: Any, block: Any, dtype: torch.dtype) -> Upsample:
    conv = expand.conv
    if conv.kernel_size != conv.stride:
        raise ValueError("the codec's first upsampling overlaps")
    factor = conv.stride[0]
    depthwise = block.dwconv.conv
    return Upsample(
        expand=(
            arrange(conv.weight, (2, 1, 0), dtype).flatten(0, 1),
            conv.bias.detach().to(dtype).repeat(factor),
        ),
        factor=factor,
        depthwise=(depthwise.weight.detach().to(dtype), depthwise.bias.detach().to(dtype)),
        norm=_pair(block.norm, dtype),
        inner=_pair(block.pwconv1, dtype),
        outer=_pair(block.pwconv2, dtype),
        gamma=block.gamma.detach().to(dtype),
    )


def _blocks(
    blocks: list[Any], last: Any, bias: torch.Tensor, dtype: torch.dtype
) -> tuple[Snake, tuple[Block, ...]]:
    enter = Snake.of(blocks[0].block[0], bias.detach().float())
    following = [block.block[0] for block in blocks[1:]] + [last]
    return enter, tuple(_block(block, after, dtype) for block, after in zip(blocks, following, strict=True))


def _block(module: Any, after: Any, dtype: torch.dtype) -> Block:
    _, upsample, *residual = module.block
    conv = upsample.conv
    rate = conv.stride[0]
    if conv.kernel_size[0] != 2 * rate:
        raise ValueError("the codec's upsampling has a kernel that is not twice its rate")
    taps = arrange(conv.weight, (2, 1, 0), dtype)
    pending = conv.bias.detach().float()
    units = []
    for unit in residual:
        units.append(
            Unit(
                first=Snake.of(unit.act1, pending),
                conv=arrange(unit.conv1.conv.weight, (0, 2, 1), dtype),
                dilation=unit.conv1.dilation,
                second=Snake.of(unit.act2, unit.conv1.conv.bias.detach().float()),
                point=unit.conv2.conv.weight.detach()[..., 0].to(dtype),
            )
        )
        pending = pending + unit.conv2.conv.bias.detach().float()
    return Block(
        taps[:rate].flatten(0, 1), taps[rate:].flatten(0, 1), rate, tuple(units), Snake.of(after, pending)
    )

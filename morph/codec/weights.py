"""The weights of the codec's decoder in the layout that ``forward.py`` reads: views of the parameters of ``modules``.

Convolutions run over rows ``[T, C]`` (channels innermost), which needs weights ``[out, taps, in]``. Upstream's
parameters are moved to storage in that order: they stay the same objects with the same shapes and values, and nothing
is stored twice. Derived tensors (SnakeBeta's constants, normalised codebooks) are small.

SnakeBeta adds the biases of the convolutions before it in registers; along a chain of residual units they accumulate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import Any, TypeAlias

import torch

from ..model.layers import Angles, Layer, Layers
from .modules import CODEBOOK_EPSILON
from .packing import LONGEST_CHUNK

Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # weight and bias

EPSILON = 1e-9  # SnakeBeta's


@dataclass(frozen=True)
class SnakeWeights:
    """SnakeBeta of ``x + bias``; all float32 ``[C]``."""

    turns: torch.Tensor  # e^alpha / pi
    scale: torch.Tensor  # 1 / (e^beta + 1e-9)
    bias: torch.Tensor

    @classmethod
    def of(cls, module: Any, bias: torch.Tensor) -> SnakeWeights:
        alpha, beta = module.alpha.detach().float(), module.beta.detach().float()
        return cls(alpha.exp() / math.pi, 1 / (beta.exp() + EPSILON), bias)


@dataclass(frozen=True)
class TransformerWeights(Layers):
    """The codec's transformer."""

    project: Pair  # into its width
    restore: Pair  # out of its width
    angles: Angles
    window: int


@dataclass(frozen=True)
class Upsample:
    """A transposed convolution whose kernel is its stride, ``[factor C, C]``, and a ConvNeXt block."""

    expand: Pair
    factor: int
    depthwise: Pair
    norm: Pair
    inner: Pair
    outer: Pair
    gamma: torch.Tensor


@dataclass(frozen=True)
class Unit:
    """A residual unit: SnakeBeta, ``conv`` ``[C, taps, C]`` with a dilation, SnakeBeta, ``point`` ``[C, C]``."""

    first: SnakeWeights
    conv: torch.Tensor
    dilation: int
    second: SnakeWeights
    point: torch.Tensor


@dataclass(frozen=True)
class BlockWeights:
    """A transposed convolution of kernel 2 x stride as two GEMMs, three units, and the SnakeBeta after them."""

    now: torch.Tensor  # ``[rate C_out, C_in]``: a position's part of its own outputs
    before: torch.Tensor  # the same of the next position's outputs
    rate: int
    units: tuple[Unit, ...]
    after: SnakeWeights


@dataclass(frozen=True)
class CodecWeights:
    """All weights of the codec's decoder, which turns codes into samples."""

    codebooks: torch.Tensor  # ``[groups V, D]``
    offsets: torch.Tensor
    first_groups: int
    quantised: torch.Tensor  # ``[2 D, 2 D]``, the projections of both halves
    pre_conv: Pair
    transformer: TransformerWeights
    upsample: tuple[Upsample, ...]
    start: torch.Tensor
    enter: SnakeWeights
    blocks: tuple[BlockWeights, ...]
    finish: Pair
    samples_per_frame: int
    gap: int  # zero frames that replace the padding of every convolution
    reaches: tuple[int, ...]  # for each block, past frames that affect it and all after it
    context: int  # past outputs of the transformer that affect a frame

    @classmethod
    def of(cls, decoder: Any) -> CodecWeights:
        """View a codec's decoder (``modules.Decoder``)."""
        with torch.inference_mode(False), torch.no_grad():
            codebooks, count = _codebooks(decoder.quantizer)
            # The results of both output projections are added, so one GEMM over both inputs computes the sum.
            parts = (decoder.quantizer.rvq_first.output_proj, decoder.quantizer.rvq_rest.output_proj)
            start, *blocks, last_snake, last_conv = decoder.decoder
            context, reaches = reaches_of(decoder)
            pre_conv, last = decoder.pre_conv.conv, last_conv.conv
            following = [block.block[0] for block in blocks[1:]] + [last_snake]
            return cls(
                codebooks=codebooks,
                offsets=torch.arange(count, device=codebooks.device) * (len(codebooks) // count),
                first_groups=decoder.quantizer.n_q_semantic,
                quantised=torch.cat([part.weight.detach()[..., 0] for part in parts], dim=1),
                pre_conv=(arrange(pre_conv.weight, (0, 2, 1)), pre_conv.bias.detach()),
                transformer=_transformer(decoder.pre_transformer),
                upsample=tuple(_upsample(expand, block) for expand, block in decoder.upsample),
                start=arrange(start.conv.weight, (0, 2, 1)),
                enter=SnakeWeights.of(blocks[0].block[0], start.conv.bias.detach().float()),
                blocks=tuple(map(_block, blocks, following)),
                finish=(last.weight.detach().float()[0].t().contiguous(), last.bias.detach().float()),
                samples_per_frame=int(decoder.total_upsample),
                gap=max(decoder.pre_conv.padding, *(math.ceil(max(stage)) for stage in _stages(decoder))),
                reaches=reaches,
                context=context,
            )


def arrange(weight: torch.nn.Parameter, order: tuple[int, ...]) -> torch.Tensor:
    """Return a contiguous view of the weight with permuted axes; moves the parameter's storage if necessary."""
    view = weight.detach().permute(order)
    if not view.is_contiguous():
        view = view.contiguous()
        weight.data = view.permute([order.index(axis) for axis in range(len(order))])
    return view


def _stages(decoder: Any) -> list[list[Fraction]]:
    """Return, for each stage after the transformer, how many past frames each of its convolutions reads."""
    rate, stages = 1, []
    for expand, block in decoder.upsample:
        rate *= expand.conv.stride[0]
        stages.append([Fraction(block.dwconv.padding, rate)])
    start, *blocks, _, last = decoder.decoder
    stages.append([Fraction(start.padding, rate)])
    for block in blocks:
        _, expand, *units = block.block
        before = Fraction(1, rate)  # one position before the transposed convolution
        rate *= expand.conv.stride[0]
        stages.append([before, *(Fraction(unit.conv1.padding, rate) for unit in units)])
    return [*stages, [Fraction(last.padding, rate)]]


def reaches_of(decoder: Any) -> tuple[int, tuple[int, ...]]:
    """Return how many past outputs of the transformer affect a frame, and how many past frames, through each block."""
    reaches = tuple(map(math.ceil, accumulate(map(sum, reversed(_stages(decoder))))))
    return reaches[-1], reaches[-2 - len(decoder.upsample) : 0 : -1]


def _codebooks(quantizer: Any) -> tuple[torch.Tensor, int]:
    books = [one._codebook for part in (quantizer.rvq_first, quantizer.rvq_rest) for one in part.vq.layers]
    vectors = [
        book.embedding_sum.float() / book.cluster_usage.float().clamp(min=CODEBOOK_EPSILON)[:, None] for book in books
    ]
    return torch.cat(vectors).to(books[0].embedding_sum.dtype), len(books)


def _pair(module: Any) -> Pair:
    return module.weight.detach(), module.bias.detach()


def _transformer(module: Any) -> TransformerWeights:
    config = module.config
    return TransformerWeights(
        project=_pair(module.input_proj),
        layers=tuple(map(_layer, module.layers)),
        norm=module.norm.weight.detach(),
        restore=_pair(module.output_proj),
        angles=Angles.table(config, LONGEST_CHUNK, module.input_proj.weight.device),
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        window=config.sliding_window,
        eps=config.rms_norm_eps,
    )


def _layer(layer: Any) -> Layer:
    scales = layer.self_attn_layer_scale.scale, layer.mlp_layer_scale.scale
    return replace(Layer.of(layer), out_scale=scales[0].detach(), down_scale=scales[1].detach())


def _upsample(expand: Any, block: Any) -> Upsample:
    factor = expand.conv.stride[0]
    return Upsample(
        expand=(arrange(expand.conv.weight, (2, 1, 0)).flatten(0, 1), expand.conv.bias.detach().repeat(factor)),
        factor=factor,
        depthwise=_pair(block.dwconv.conv),
        norm=_pair(block.norm),
        inner=_pair(block.pwconv1),
        outer=_pair(block.pwconv2),
        gamma=block.gamma.detach(),
    )


def _block(module: Any, after: Any) -> BlockWeights:
    _, upsample, *residual = module.block
    rate = upsample.conv.stride[0]
    taps = arrange(upsample.conv.weight, (2, 1, 0))
    pending = upsample.conv.bias.detach().float()
    units = []
    for unit in residual:
        units.append(
            Unit(
                first=SnakeWeights.of(unit.act1, pending),
                conv=arrange(unit.conv1.conv.weight, (0, 2, 1)),
                dilation=unit.conv1.dilation,
                second=SnakeWeights.of(unit.act2, unit.conv1.conv.bias.detach().float()),
                point=unit.conv2.conv.weight.detach()[..., 0],
            )
        )
        pending = pending + unit.conv2.conv.bias.detach().float()
    return BlockWeights(
        taps[:rate].flatten(0, 1), taps[rate:].flatten(0, 1), rate, tuple(units), SnakeWeights.of(after, pending)
    )

"""The codec's decoder as a function of one row of frames: upstream's arithmetic over rows ``[T, C]``.

A row contains many chunks, each after a gap of zeros (``packing``). Channels are innermost, so linear layers,
convolutions of one tap and transposed convolutions are plain GEMMs whose results need no copy: a transposed
convolution's ``[T, rate C]`` is ``[rate T, C]``. There is no host sync and no data-dependent shape: a CUDA graph can
hold a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from ..model import layers
from ..model.layers import Angles, Attend, KvTarget, RowOps, rotate
from ..model.network import repeat_heads
from .weights import BlockWeights, CodecWeights, Pair, SnakeWeights, TransformerWeights, Upsample

# New frames of all lines of a slab. The blocks after the first one run slab by slab: their activations take 1.4 MB per
# frame in bf16. 64 lines took 14.9 ms in slabs of 48 frames, 14.1 in slabs of 192 and 14.0 in one, on an H100.
SLAB_FRAMES = 192


class TorchOps(RowOps):
    """The operations that kernels may replace, in torch; ``keep`` ``[frames]`` is false in gaps."""

    def compile_ahead(self, *rows: Callable[[TorchOps], None]) -> None:
        """Prepare for rows of new lengths, the first before others; each decodes one with operations passed to it."""

    def rotate_into(self, qkv: torch.Tensor, angles: Angles, rings: KvTarget) -> torch.Tensor:
        """Apply RoPE in float32 to the queries and keys in ``qkv`` ``[B, N, heads + 2 kv_heads, D]``.

        Keys and values go to the rings; returns the queries ``[B, N, heads, D]``. ``angles`` are ``[B, N, 1, D]``.
        """
        kv_heads = rings.keys.shape[1]
        heads = qkv.shape[2] - 2 * kv_heads
        rotated = rotate(qkv[:, :, : heads + kv_heads].float(), angles).to(qkv.dtype)
        at = (torch.arange(len(qkv), device=qkv.device)[:, None], rings.slots)
        rings.keys.transpose(1, 2)[at] = rotated[:, :, heads:]
        rings.values.transpose(1, 2)[at] = qkv[:, :, heads + kv_heads :]
        return rotated[:, :, :heads]

    def activate(
        self, x: torch.Tensor, snake: SnakeWeights, keep: torch.Tensor, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Apply SnakeBeta to ``[T, C]`` in float32, with zeros in gaps; ``out`` may hold the result."""
        wide = x.float() + snake.bias
        wide = torch.addcmul(wide, torch.sin(wide * (math.pi * snake.turns)).square_(), snake.scale)
        return zero_gaps(wide.to(x.dtype), keep)

    def residuals(self, x: torch.Tensor, block: BlockWeights, keep: torch.Tensor) -> torch.Tensor:
        """Run a block's residual units and the SnakeBeta after them; overwrites ``x``."""
        for unit in block.units:
            hidden = causal_conv(self.activate(x, unit.first, keep), unit.conv, unit.dilation)
            x.addmm_(self.activate(hidden, unit.second, keep), unit.point.t())
        return self.activate(x, block.after, keep)

    def end(self, x: torch.Tensor, block: BlockWeights, keep: torch.Tensor, finish: Pair) -> torch.Tensor:
        """Run the last block's ``residuals`` and the last convolution, ``finish``'s weight and bias."""
        return self.finish(self.residuals(x, block, keep), *finish)

    def finish(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Run the last convolution: ``[T, C]`` to float32 samples ``[T]`` within -1..1; ``weight`` is ``[taps, C]``."""
        wave = causal_conv(x, weight[None].to(x.dtype))
        return (wave[:, 0].float() + bias).clamp_(-1, 1)


def causal_conv(
    x: torch.Tensor, weight: torch.Tensor, dilation: int = 1, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Convolve ``[T, C_in]`` causally with ``[C_out, taps, C_in]``: ``[T, C_out]``."""
    length, channels = x.shape
    padding = (weight.shape[1] - 1) * dilation
    # Padding both sides needs no copy; the outputs of the right side are cut off.
    result = functional.conv2d(
        x.view(1, 1, length, channels).permute(0, 3, 1, 2),
        weight.unsqueeze(1).permute(0, 3, 1, 2),
        bias,
        padding=(0, padding),
        dilation=(1, dilation),
    )
    # cuDNN may return channels outermost: then this is a view in a layout that no kernel here expects.
    return result.permute(0, 2, 3, 1).reshape(length + padding, -1)[:length].contiguous()


def zero_gaps(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Zero the gaps of ``[T, C]`` in place; T is a multiple of the number of frames in ``keep``."""
    x.view(len(keep), -1).masked_fill_(~keep[:, None], 0)
    return x


@dataclass(frozen=True)
class Positions:
    """The places of a row's frames, int64 or bool ``[frames]``."""

    index: torch.Tensor  # in the row
    starts: torch.Tensor  # the index where its chunk starts
    keep: torch.Tensor  # false in gaps

    @classmethod
    def of(cls, begins: torch.Tensor) -> Positions:
        """Read a plan's last column; every frame of a gap counts as a separate chunk."""
        index = torch.arange(len(begins), device=begins.device)
        keep = begins >= 0
        return cls(index, torch.where(keep, begins, index), keep)

    def bias(self, block: int, window: int, dtype: torch.dtype) -> torch.Tensor:
        """Return attention's bias ``[blocks, 1, block, 2 block]``, -inf but for a chunk's last ``window`` frames."""
        queries = self.index.view(-1, block, 1)
        keys = queries[:, :1] - block + torch.arange(2 * block, device=queries.device)
        seen = (keys >= self.starts.view(-1, block, 1)) & (keys <= queries) & (queries - keys < window)
        bias = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -math.inf)
        return bias[:, None]


@dataclass(frozen=True)
class Slabs:
    """Run the blocks from index ``first`` on, whose activations are the largest, and always the last one, in slabs."""

    frames: int  # of a slab
    first: int


def synthesise(weights: CodecWeights, plan: torch.Tensor, ops: TorchOps, slabs: Slabs, out: torch.Tensor) -> None:
    """Decode a row: ``packing.write_plan``'s ``[frames, groups + 1]`` to float32 samples ``out`` ``[frames * 1920]``.

    It equals upstream's ``Qwen3TTSTokenizerV2Decoder.forward`` of each chunk; samples in gaps are meaningless.
    """
    positions = Positions.of(plan[:, -1])
    latent = zero_gaps(dequantise(weights, plan[:, :-1]), positions.keep)
    x = causal_conv(latent, weights.pre_conv[0], 1, weights.pre_conv[1])
    x = run_transformer(weights.transformer, x, positions, ops)
    begin = 0
    for wave in convolve(weights, x, positions.keep, ops, slabs):
        out[begin : begin + len(wave)] = wave
        begin += len(wave)


def convolve(
    weights: CodecWeights, x: torch.Tensor, keep: torch.Tensor, ops: TorchOps, slabs: Slabs
) -> Iterator[torch.Tensor]:
    """Run a row's convolutions over the transformer's outputs ``[frames, latent]``; yield each slab's samples.

    The last blocks depend on at most a few past frames, which are recomputed for every slab.
    """
    frames = len(x)
    x = enter_blocks(weights, x, keep, ops)
    for block in weights.blocks[: slabs.first]:
        x = run_block(block, x, keep, ops)
    rate, samples = len(x) // frames, weights.samples_per_frame
    for begin in range(0, frames, slabs.frames):
        first, end = max(0, begin - weights.reaches[slabs.first]), min(begin + slabs.frames, frames)
        part = x[first * rate : end * rate]
        for block in weights.blocks[slabs.first : -1]:
            part = run_block(block, part, keep[first:end], ops)
        wave = run_last(weights, part, keep[first:end], ops)
        yield wave[(begin - first) * samples :]


def enter_blocks(weights: CodecWeights, x: torch.Tensor, keep: torch.Tensor, ops: TorchOps) -> torch.Tensor:
    """Run what is before the blocks: the transformer's outputs ``[frames, latent]`` to ``[4 * frames, C]``."""
    for stage in weights.upsample:
        x = upsample(stage, x, keep)
    x = causal_conv(zero_gaps(x, keep), weights.start)
    return ops.activate(x, weights.enter, keep, x)


def run_block(block: BlockWeights, x: torch.Tensor, keep: torch.Tensor, ops: TorchOps) -> torch.Tensor:
    """Run a block over ``[T, C_in]``: ``[rate T, C_out]``."""
    return ops.residuals(spread(block, x), block, keep)


def run_last(weights: CodecWeights, x: torch.Tensor, keep: torch.Tensor, ops: TorchOps) -> torch.Tensor:
    """Run the last block and the convolution after it over ``[T, C_in]``: float32 samples ``[rate T]``."""
    block = weights.blocks[-1]
    return ops.end(spread(block, x), block, keep, weights.finish)


def dequantise(weights: CodecWeights, codes: torch.Tensor) -> torch.Tensor:
    """Return the latents of codes ``[T, groups]``: the first group and the sum of the others, projected and added."""
    vectors = weights.codebooks[codes + weights.offsets]
    first, rest = vectors.split((weights.first_groups, codes.shape[1] - weights.first_groups), dim=1)
    both = torch.cat((first.sum(1, dtype=torch.float32), rest.sum(1, dtype=torch.float32)), dim=1)
    return functional.linear(both.to(vectors.dtype), weights.quantised)


def run_transformer(
    transformer: TransformerWeights, x: torch.Tensor, positions: Positions, ops: TorchOps
) -> torch.Tensor:
    """Run the transformer; its sliding window is computed in blocks of one window that also see the previous block.

    ``x`` has at most as many frames as the window, or a multiple of it.
    """
    block = transformer.window if len(x) % transformer.window == 0 else len(x)
    in_chunk = positions.index - positions.starts
    angles = Angles(transformer.angles.cos[in_chunk, None], transformer.angles.sin[in_chunk, None])
    bias = positions.bias(block, transformer.window, x.dtype)
    return run_layers(transformer, x, lambda _, qkv: attend_blocks(transformer, qkv, angles, bias), ops)


def run_layers(transformer: TransformerWeights, x: torch.Tensor, attend: Attend, ops: TorchOps) -> torch.Tensor:
    """Run the transformer over ``[..., latent]``."""
    states = functional.linear(x, *transformer.project)
    states = layers.run_layers(transformer, states, attend, ops)
    return functional.linear(states, *transformer.restore)


def attend_blocks(
    transformer: TransformerWeights, qkv: torch.Tensor, angles: Angles, bias: torch.Tensor
) -> torch.Tensor:
    """Attend over T frames: each block's queries to its own keys and those of the previous block."""
    heads, kv_heads, block = transformer.heads, transformer.kv_heads, bias.shape[2]
    qkv = qkv.unflatten(-1, (heads + 2 * kv_heads, -1))
    rotated = rotate(qkv[:, : heads + kv_heads].float(), angles).to(qkv.dtype)
    queries = rotated[:, :heads].unflatten(0, (-1, block)).transpose(1, 2)
    keys, values = (
        functional.pad(part, (0, 0, 0, 0, block, 0)).unfold(0, 2 * block, block).transpose(2, 3)
        for part in (rotated[:, heads:], qkv[:, heads + kv_heads :])
    )
    keys, values = repeat_heads(keys, values, heads)
    out = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
    return out.transpose(1, 2).reshape(len(qkv), -1)


def upsample(stage: Upsample, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Upsample ``[T, C]`` to ``[factor T, C]``: a transposed convolution without overlap, then a ConvNeXt block."""
    x = zero_gaps(functional.linear(x, *stage.expand).view(stage.factor * len(x), -1), keep)
    weight, bias = stage.depthwise
    padding = weight.shape[-1] - 1
    channels_first = x.t().contiguous()[None]
    hidden = functional.conv1d(channels_first, weight, bias, padding=padding, groups=len(weight))
    hidden = hidden[0, :, : len(x)].t().contiguous()
    hidden = functional.layer_norm(hidden, hidden.shape[-1:], *stage.norm, eps=1e-6)
    hidden = functional.linear(functional.gelu(functional.linear(hidden, *stage.inner)), *stage.outer)
    return torch.addcmul(x, hidden, stage.gamma)


def spread(block: BlockWeights, x: torch.Tensor) -> torch.Tensor:
    """Run a block's transposed convolution, without its bias: ``[T, C_in]`` to ``[rate T, C_out]``."""
    result = x @ block.now.t()
    result[1:].addmm_(x[:-1], block.before.t())
    return result.view(block.rate * len(x), -1)


def convolve_newest(
    weights: CodecWeights, x: torch.Tensor, keep: torch.Tensor, ops: TorchOps, new: int
) -> torch.Tensor:
    """Run the convolutions for each line's last ``new`` frames: float32 ``[B, new * 1920]``.

    Samples depend on ten past frames, but the last blocks, which are most of the work, on one: each block runs over
    only the frames that it and the later layers depend on. Lines are side by side in one row. A line's first
    positions read some of the line before it, which reaches none of its new frames. ``x`` are the transformer's outputs
    ``[B, context + new, latent]``, with ``weights.context`` past frames or more; ``keep`` is bool
    ``[B, context + new]``, false if a line has no frame there.
    """
    row = zero_gaps(x.flatten(0, 1), keep.flatten())
    x = enter_blocks(weights, row, keep.flatten(), ops).view(*keep.shape, -1)
    (first, reach), *later = zip(weights.blocks[:-1], weights.reaches[:-1], strict=True)
    x, keep = _run_newest(first, x, keep, ops, reach + new)
    size, waves = max(1, SLAB_FRAMES // new), []
    for part, kept in zip(x.split(size), keep.split(size), strict=True):
        for block, reach in later:
            part, kept = _run_newest(block, part, kept, ops, reach + new)
        part, kept = _newest(part, kept, weights.reaches[-1] + new)
        wave = run_last(weights, part.reshape(-1, weights.blocks[-1].now.shape[1]), kept.flatten(), ops)
        waves.append(wave.view(len(part), -1)[:, -new * weights.samples_per_frame :])
    return torch.cat(waves)


def _run_newest(
    block: BlockWeights, x: torch.Tensor, keep: torch.Tensor, ops: TorchOps, frames: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a block over each line's last ``frames`` frames of ``[B, F, C]``; return them and their ``keep``."""
    x, keep = _newest(x, keep, frames)
    row = run_block(block, x.reshape(-1, block.now.shape[1]), keep.flatten(), ops)
    return row.view(*keep.shape, -1), keep


def _newest(x: torch.Tensor, keep: torch.Tensor, frames: int) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:, -frames:], keep[:, -frames:].contiguous()

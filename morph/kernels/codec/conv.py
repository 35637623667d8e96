"""A residual unit of the codec as one kernel, and the last convolution; rows are ``[T, C]``, channels innermost.

Causal convolutions are products: taps and input channels are one long inner dimension, and the weight's axes are
``[out, taps, in]``. Their input is already activated, so tiles go to the tensor cores as they are. SnakeBeta is the
epilogue: each kernel activates what the next one reads.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ...codec.weights import Snake, Unit
from ..precompile import Launch, run
from .snake import snake

# Compiled once for any dilation, and wherever in a row's mask a slab begins.
UNSPECIALIZED = ("keep_ptr", "dilation")


@dataclass(frozen=True)
class ConvTile:
    """A program's share of a residual unit: ``rows`` positions, ``step`` inner elements at a time."""

    rows: int = 128
    step: int = 64
    warps: int = 8
    stages: int = 4


@triton.jit(do_not_specialize=UNSPECIALIZED)
def _residual_unit(
    x_ptr, active_ptr, conv_ptr, turns_ptr, scale_ptr, bias_ptr, point_ptr, next_turns_ptr, next_scale_ptr,
    next_bias_ptr, keep_ptr, out_ptr, length, dilation, PER_FRAME: tl.constexpr, WIDE: tl.constexpr, NARROW:
    tl.constexpr, TAPS: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, WRITE_X: tl.constexpr,
):  # fmt: skip
    """A program owns all channels of its ROWS positions: 3 * 2^n channels, as a wide and a narrow power of 2.

    It computes the 7-tap convolution, SnakeBeta, the 1-tap convolution ("point"), the residual sum, and the next
    SnakeBeta. The hidden channels never reach global memory.
    """
    CHANNELS: tl.constexpr = WIDE + NARROW
    STEPS: tl.constexpr = CHANNELS // STEP
    dtype = active_ptr.dtype.element_ty
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    wide, narrow = tl.arange(0, WIDE), WIDE + tl.arange(0, NARROW)
    inner = tl.arange(0, STEP)
    hidden_w = tl.zeros((ROWS, WIDE), dtype=tl.float32)
    hidden_n = tl.zeros((ROWS, NARROW), dtype=tl.float32)
    for part in range(TAPS * STEPS):  # STEP input channels of one tap
        source = rows - (TAPS - 1 - part // STEPS) * dilation
        seen = (source >= 0) & (source < length)  # causal: zeros before the row's start
        inputs = tl.load(
            active_ptr + source[:, None] * CHANNELS + (part % STEPS) * STEP + inner[None, :],
            mask=seen[:, None],
            other=0.0,
        )
        weights = conv_ptr + part * STEP + inner[:, None]
        hidden_w = tl.dot(inputs, tl.load(weights + wide[None, :] * (TAPS * CHANNELS)), hidden_w)
        hidden_n = tl.dot(inputs, tl.load(weights + narrow[None, :] * (TAPS * CHANNELS)), hidden_n)
    hidden_w = snake(
        hidden_w,
        tl.load(turns_ptr + wide)[None, :],
        tl.load(scale_ptr + wide)[None, :],
        tl.load(bias_ptr + wide)[None, :],
    ).to(dtype)
    hidden_n = snake(
        hidden_n,
        tl.load(turns_ptr + narrow)[None, :],
        tl.load(scale_ptr + narrow)[None, :],
        tl.load(bias_ptr + narrow)[None, :],
    ).to(dtype)
    inside = rows < length
    keep = tl.load(keep_ptr + rows // PER_FRAME, mask=inside, other=0) != 0
    point_w, point_n = point_ptr + wide[:, None], point_ptr + narrow[:, None]
    x_w = tl.dot(hidden_w, tl.load(point_w + wide[None, :] * CHANNELS))
    x_w = tl.dot(hidden_n, tl.load(point_n + wide[None, :] * CHANNELS), x_w)
    _add_and_activate(
        x_w, wide, rows, inside, keep, x_ptr, next_turns_ptr, next_scale_ptr, next_bias_ptr, out_ptr,
        CHANNELS, WRITE_X,
    )  # fmt: skip
    x_n = tl.dot(hidden_w, tl.load(point_w + narrow[None, :] * CHANNELS))
    x_n = tl.dot(hidden_n, tl.load(point_n + narrow[None, :] * CHANNELS), x_n)
    _add_and_activate(
        x_n, narrow, rows, inside, keep, x_ptr, next_turns_ptr, next_scale_ptr, next_bias_ptr, out_ptr,
        CHANNELS, WRITE_X,
    )  # fmt: skip


@triton.jit
def _add_and_activate(
    added, columns, rows, inside, keep, x_ptr, turns_ptr, scale_ptr, bias_ptr, out_ptr, CHANNELS: tl.constexpr,
    WRITE_X: tl.constexpr,
):  # fmt: skip
    """Add to the residual stream in place, and store its SnakeBeta."""
    offsets = rows[:, None] * CHANNELS + columns[None, :]
    x = tl.load(x_ptr + offsets, mask=inside[:, None], other=0.0).to(tl.float32) + added
    if WRITE_X:
        tl.store(x_ptr + offsets, x.to(x_ptr.dtype.element_ty), mask=inside[:, None])
    turns, scale = tl.load(turns_ptr + columns)[None, :], tl.load(scale_ptr + columns)[None, :]
    y = tl.where(keep[:, None], snake(x, turns, scale, tl.load(bias_ptr + columns)[None, :]), 0.0)
    tl.store(out_ptr + offsets, y.to(out_ptr.dtype.element_ty), mask=inside[:, None])


@triton.jit
def _last_conv(
    active_ptr, weight_ptr, bias_ptr, out_ptr, length, CHANNELS: tl.constexpr, TAPS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute one sample per position: a float32 sum over taps and channels; a program owns ROWS positions.

    Every tap reads the same rows, shifted: after the first tap they come from the cache.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    real = columns < CHANNELS
    products = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for tap in tl.static_range(TAPS):
        source = rows - (TAPS - 1 - tap)
        seen = ((source >= 0) & (source < length))[:, None] & real[None, :]
        inputs = tl.load(active_ptr + source[:, None] * CHANNELS + columns[None, :], mask=seen, other=0.0)
        weight = tl.load(weight_ptr + tap * CHANNELS + columns, mask=real, other=0.0)
        products += inputs.to(tl.float32) * weight[None, :]
    samples = tl.sum(products, axis=1) + tl.load(bias_ptr)
    samples = tl.minimum(tl.maximum(samples, -1.0), 1.0)
    tl.store(out_ptr + rows, samples, mask=rows < length)


def split_channels(channels: int) -> tuple[int, int] | None:
    """Split 3 * 2^n channels into 2^(n + 1) and 2^n, widths that Triton can multiply; None for other numbers."""
    narrow = channels // 3
    if channels % 3 or narrow < 16 or narrow & (narrow - 1):
        return None
    return 2 * narrow, narrow


def residual_unit(
    x: torch.Tensor,
    active: torch.Tensor,
    unit: Unit,
    after: Snake,
    keep: torch.Tensor,
    tile: ConvTile,
    last: bool,
    launch: Launch = run,
) -> torch.Tensor:
    """Run a complete residual unit over ``[T, C]``, and return ``after``'s SnakeBeta of the new stream.

    It has one parameter per tensor or setting of the kernel, hence their number.

    Args:
        x: the residual stream, updated in place unless ``last``.
        active: the unit's first SnakeBeta of ``x``.
        keep: bool ``[frames]``; the result is zero in the other frames.

    Raises:
        ValueError: if the channels are not 3 * 2^n, at least 48.
    """
    split = split_channels(x.shape[1])
    if split is None:
        raise ValueError(f"{x.shape[1]} channels: a unit kernel needs 3 times a power of 2, at least 48")
    length = len(x)
    out = torch.empty_like(active)
    launch(
        _residual_unit, (triton.cdiv(length, tile.rows),), x, active, unit.conv, unit.second.turns,
        unit.second.scale, unit.second.bias, unit.point, after.turns, after.scale, after.bias,
        keep.view(torch.uint8), out, length, unit.dilation, PER_FRAME=length // len(keep), WIDE=split[0],
        NARROW=split[1], TAPS=unit.conv.shape[1], ROWS=tile.rows, STEP=tile.step, WRITE_X=not last,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def last_conv(
    active: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, launch: Launch = run
) -> torch.Tensor:
    """Convert ``[T, C]`` to float32 samples ``[T]``, clipped to -1..1; ``weight`` is float32 ``[taps, C]``."""
    length, channels = active.shape
    columns = triton.next_power_of_2(channels)
    rows = max(1, 4096 // columns)
    out = torch.empty(length, dtype=torch.float32, device=active.device)
    launch(
        _last_conv, (triton.cdiv(length, rows),), active, weight, bias, out, length, CHANNELS=channels,
        TAPS=len(weight), ROWS=rows, COLUMNS=columns,
    )  # fmt: skip
    return out

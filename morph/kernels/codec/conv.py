"""The codec's convolutions as kernels: wide ones, a narrow residual unit, the last one; rows are ``[T, C]``.

A causal convolution is a GEMM over taps and input channels as one inner dimension; the weight is ``[out, taps, in]``.
Its input is already activated: each kernel's epilogue applies the SnakeBeta that the next one reads.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from ...codec.weights import SnakeWeights, Unit
from ..precompile import Launch, run
from .snake import snake

# Compiled once for any dilation, and wherever in a row's mask a slab begins.
UNSPECIALIZED = ("keep_ptr", "dilation")
MOST_TAPS = tl.constexpr(8)  # of the last convolution
SUMMED_ROWS = 1024  # positions per program of ``_sum_taps``


@dataclass(frozen=True)
class ConvTile:
    """A program's share of a convolution."""

    rows: int = 128  # positions
    step: int = 64  # inner elements at a time
    warps: int = 8
    stages: int = 4
    columns: int = 128  # outputs in ``convolve``; a residual unit's program has all channels
    tma: bool = False  # the tensor copy engine loads a residual unit's operands (capability 9.0 on)

    @property
    def shared_bytes(self) -> int:
        return 2 * (self.rows + self.columns) * self.step * self.stages


@triton.jit
def _load_inputs(
    active_ptr, rows, length, part, dilation, CHANNELS: tl.constexpr, TAPS: tl.constexpr, STEP: tl.constexpr
):
    STEPS: tl.constexpr = CHANNELS // STEP
    source = rows - (TAPS - 1 - part // STEPS) * dilation
    seen = (source >= 0) & (source < length)  # causal: zeros before the row's start
    channels = (part % STEPS) * STEP + tl.arange(0, STEP)
    return tl.load(active_ptr + source[:, None] * CHANNELS + channels[None, :], mask=seen[:, None], other=0.0)


@triton.jit
def _activate(x, columns, turns_ptr, scale_ptr, bias_ptr):
    turns, scale = tl.load(turns_ptr + columns)[None, :], tl.load(scale_ptr + columns)[None, :]
    return snake(x, turns, scale, tl.load(bias_ptr + columns)[None, :])


@triton.jit(do_not_specialize=UNSPECIALIZED)
def _convolve(
    active_ptr, conv_ptr, turns_ptr, scale_ptr, bias_ptr, keep_ptr, out_ptr, length, dilation,
    PER_FRAME: tl.constexpr, CHANNELS: tl.constexpr, TAPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
):  # fmt: skip
    """A unit's 7-tap convolution and SnakeBeta; a program has a ROWS x COLUMNS tile of ``[length, CHANNELS]``."""
    # Adjacent programs share their rows, the larger operand.
    ACROSS: tl.constexpr = CHANNELS // COLUMNS
    STEPS: tl.constexpr = CHANNELS // STEP
    rows = (tl.program_id(0) // ACROSS) * ROWS + tl.arange(0, ROWS)
    columns = (tl.program_id(0) % ACROSS) * COLUMNS + tl.arange(0, COLUMNS)
    inner = tl.arange(0, STEP)
    hidden = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for part in range(TAPS * STEPS):  # STEP input channels of one tap
        inputs = _load_inputs(active_ptr, rows, length, part, dilation, CHANNELS, TAPS, STEP)
        weights = conv_ptr + part * STEP + inner[:, None] + columns[None, :] * (TAPS * CHANNELS)
        hidden = tl.dot(inputs, tl.load(weights), hidden)
    hidden = _activate(hidden, columns, turns_ptr, scale_ptr, bias_ptr)
    inside = rows < length
    keep = tl.load(keep_ptr + rows // PER_FRAME, mask=inside, other=0) != 0
    hidden = tl.where(keep[:, None], hidden, 0.0).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + rows[:, None] * CHANNELS + columns[None, :], hidden, mask=inside[:, None])


@triton.jit(do_not_specialize=UNSPECIALIZED)
def _residual_unit(
    x_ptr, active, conv, narrow_conv, turns_ptr, scale_ptr, bias_ptr, point_ptr, next_turns_ptr, next_scale_ptr,
    next_bias_ptr, keep_ptr, out_ptr, taps_ptr, length, dilation, PER_FRAME: tl.constexpr, WIDE: tl.constexpr, NARROW:
    tl.constexpr, TAPS: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, WRITE_X: tl.constexpr,
    LAST: tl.constexpr,
):  # fmt: skip
    """A complete residual unit; a program has all channels of its ROWS positions, as a wide and a narrow power of 2.

    The hidden channels never reach global memory. ``active`` and ``conv`` are pointers. With ``narrow_conv`` all
    three are descriptors for the tensor copy engine, which reads zeros outside: of ``active``'s tiles ``[ROWS,
    STEP]``, and the weight's, ``[WIDE, STEP]`` and ``[NARROW, STEP]``. With ``taps_ptr``, the last convolution's
    weight, float32 ``[LAST, CHANNELS]``, the dot product of the last SnakeBeta with each tap is stored instead:
    float32 ``[length, MOST_TAPS]``.
    """
    CHANNELS: tl.constexpr = WIDE + NARROW
    STEPS: tl.constexpr = CHANNELS // STEP
    dtype = x_ptr.dtype.element_ty
    first = tl.program_id(0) * ROWS
    rows = first + tl.arange(0, ROWS)
    wide, narrow = tl.arange(0, WIDE), WIDE + tl.arange(0, NARROW)
    inner = tl.arange(0, STEP)
    hidden_w = tl.zeros((ROWS, WIDE), dtype=tl.float32)
    hidden_n = tl.zeros((ROWS, NARROW), dtype=tl.float32)
    for part in range(TAPS * STEPS):  # STEP input channels of one tap
        if narrow_conv is None:
            inputs = _load_inputs(active, rows, length, part, dilation, CHANNELS, TAPS, STEP)
            weights = conv + part * STEP + inner[:, None]
            hidden_w = tl.dot(inputs, tl.load(weights + wide[None, :] * (TAPS * CHANNELS)), hidden_w)
            hidden_n = tl.dot(inputs, tl.load(weights + narrow[None, :] * (TAPS * CHANNELS)), hidden_n)
        else:
            inputs = active.load([first - (TAPS - 1 - part // STEPS) * dilation, (part % STEPS) * STEP])
            hidden_w = tl.dot(inputs, conv.load([0, part * STEP]).T, hidden_w)
            hidden_n = tl.dot(inputs, narrow_conv.load([WIDE, part * STEP]).T, hidden_n)
    hidden_w = _activate(hidden_w, wide, turns_ptr, scale_ptr, bias_ptr).to(dtype)
    hidden_n = _activate(hidden_n, narrow, turns_ptr, scale_ptr, bias_ptr).to(dtype)
    inside = rows < length
    keep = tl.load(keep_ptr + rows // PER_FRAME, mask=inside, other=0) != 0
    point_w, point_n = point_ptr + wide[:, None], point_ptr + narrow[:, None]
    x_w = tl.dot(hidden_w, tl.load(point_w + wide[None, :] * CHANNELS))
    x_w = tl.dot(hidden_n, tl.load(point_n + wide[None, :] * CHANNELS), x_w)
    y_w = _add_and_activate(
        x_w, wide, rows, inside, keep, x_ptr, next_turns_ptr, next_scale_ptr, next_bias_ptr, CHANNELS, WRITE_X
    )
    if taps_ptr is None:
        tl.store(out_ptr + rows[:, None] * CHANNELS + wide[None, :], y_w, mask=inside[:, None])
    x_n = tl.dot(hidden_w, tl.load(point_w + narrow[None, :] * CHANNELS))
    x_n = tl.dot(hidden_n, tl.load(point_n + narrow[None, :] * CHANNELS), x_n)
    y_n = _add_and_activate(
        x_n, narrow, rows, inside, keep, x_ptr, next_turns_ptr, next_scale_ptr, next_bias_ptr, CHANNELS, WRITE_X
    )  # fmt: skip
    if taps_ptr is None:
        tl.store(out_ptr + rows[:, None] * CHANNELS + narrow[None, :], y_n, mask=inside[:, None])
    else:
        sums = tl.dot(y_w, _split_taps(taps_ptr, wide, CHANNELS, LAST, y_w.dtype))
        sums = tl.dot(y_n, _split_taps(taps_ptr, narrow, CHANNELS, LAST, y_n.dtype), sums)
        sums = tl.sum(tl.reshape(sums, (ROWS, 2, MOST_TAPS)), axis=1)
        tap = tl.arange(0, MOST_TAPS)
        tl.store(out_ptr + rows[:, None] * MOST_TAPS + tap[None, :], sums, mask=inside[:, None])


@triton.jit
def _split_taps(taps_ptr, channels, CHANNELS: tl.constexpr, LAST: tl.constexpr, dtype: tl.constexpr):
    """Load the last convolution's weight, float32 ``[LAST, CHANNELS]``, as ``[channels, 2 MOST_TAPS]``."""
    # Each weight becomes two 16-bit numbers, itself and its rounding error. The tensor cores multiply both at once,
    # and the sum is right to 16 bits in bf16.
    part = tl.arange(0, 2 * MOST_TAPS)
    tap = part % MOST_TAPS
    weight = tl.load(taps_ptr + tap[None, :] * CHANNELS + channels[:, None], mask=(tap < LAST)[None, :], other=0.0)
    rounded = weight.to(dtype)
    return tl.where((part < MOST_TAPS)[None, :], rounded, (weight - rounded.to(tl.float32)).to(dtype))


@triton.jit
def _add_and_activate(
    added, columns, rows, inside, keep, x_ptr, turns_ptr, scale_ptr, bias_ptr, CHANNELS: tl.constexpr,
    WRITE_X: tl.constexpr,
):  # fmt: skip
    offsets = rows[:, None] * CHANNELS + columns[None, :]
    x = tl.load(x_ptr + offsets, mask=inside[:, None], other=0.0).to(tl.float32) + added
    if WRITE_X:
        tl.store(x_ptr + offsets, x.to(x_ptr.dtype.element_ty), mask=inside[:, None])
    y = tl.where(keep[:, None], _activate(x, columns, turns_ptr, scale_ptr, bias_ptr), 0.0)
    return y.to(x_ptr.dtype.element_ty)


@triton.jit
def _sum_taps(products_ptr, bias_ptr, out_ptr, length, TAPS: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    samples = tl.zeros((ROWS,), dtype=tl.float32) + tl.load(bias_ptr)
    for tap in tl.static_range(TAPS):
        source = rows - (TAPS - 1 - tap)
        seen = (source >= 0) & (source < length)
        samples += tl.load(products_ptr + source * MOST_TAPS + tap, mask=seen, other=0.0)
    samples = tl.minimum(tl.maximum(samples, -1.0), 1.0)
    tl.store(out_ptr + rows, samples, mask=rows < length)


@triton.jit
def _last_conv(
    active_ptr, weight_ptr, bias_ptr, out_ptr, length, CHANNELS: tl.constexpr, TAPS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute one sample per position: a float32 sum over taps and channels; a program has ROWS positions."""
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


def convolve(
    active: torch.Tensor, unit: Unit, keep: torch.Tensor, tile: ConvTile, launch: Launch = run
) -> torch.Tensor:
    """Return a unit's convolution of ``[T, C]`` after its second SnakeBeta; see ``residual_unit``."""
    length, channels = active.shape
    if channels % tile.columns or channels % tile.step:
        raise ValueError(f"{channels} channels: no multiple of {tile.columns} columns and {tile.step} per step")
    out = torch.empty_like(active)
    launch(
        _convolve, (triton.cdiv(length, tile.rows) * (channels // tile.columns),), active, unit.conv,
        unit.second.turns, unit.second.scale, unit.second.bias, keep.view(torch.uint8), out, length, unit.dilation,
        PER_FRAME=length // len(keep), CHANNELS=channels, TAPS=unit.conv.shape[1], ROWS=tile.rows,
        COLUMNS=tile.columns, STEP=tile.step, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def residual_unit(
    x: torch.Tensor,
    active: torch.Tensor,
    unit: Unit,
    after: SnakeWeights,
    keep: torch.Tensor,
    tile: ConvTile,
    last: bool,
    launch: Launch = run,
    taps: torch.Tensor | None = None,
) -> torch.Tensor:
    """Run a residual unit over ``[T, C]``, and return ``after``'s SnakeBeta of the new stream.

    Args:
        x: the residual stream, updated in place unless ``last``; active: the unit's first SnakeBeta of it.
        keep: bool ``[frames]``; the result is zero in the other frames.
        taps: of the last block's last unit, the next convolution, float32 ``[taps, C]``, at most MOST_TAPS: the
            result is then float32 ``[T, MOST_TAPS]`` for ``sum_taps``.
    Raises:
        ValueError: if the channels are not 3 * 2^n, at least 48.
    """
    split = split_channels(x.shape[1])
    if split is None:
        raise ValueError(f"{x.shape[1]} channels: a unit kernel needs 3 times a power of 2, at least 48")
    length = len(x)
    products = (length, MOST_TAPS.value)
    out = torch.empty_like(active) if taps is None else active.new_empty(products, dtype=torch.float32)
    operands = _describe(active, unit.conv, split, tile) if tile.tma else (active, unit.conv, None)
    launch(
        _residual_unit, (triton.cdiv(length, tile.rows),), x, *operands, unit.second.turns,
        unit.second.scale, unit.second.bias, unit.point, after.turns, after.scale, after.bias,
        keep.view(torch.uint8), out, taps, length, unit.dilation, PER_FRAME=length // len(keep), WIDE=split[0],
        NARROW=split[1], TAPS=unit.conv.shape[1], ROWS=tile.rows, STEP=tile.step, WRITE_X=not last,
        LAST=0 if taps is None else len(taps),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def _describe(active: torch.Tensor, conv: torch.Tensor, split: tuple[int, int], tile: ConvTile) -> tuple[Any, Any, Any]:
    from triton.tools.tensor_descriptor import TensorDescriptor

    weights = conv.flatten(1)
    wide, narrow = (TensorDescriptor.from_tensor(weights, [columns, tile.step]) for columns in split)
    return TensorDescriptor.from_tensor(active, [tile.rows, tile.step]), wide, narrow


def sum_taps(products: torch.Tensor, bias: torch.Tensor, taps: int, launch: Launch = run) -> torch.Tensor:
    """Convert the last residual unit's taps to float32 samples ``[T]``, clipped to -1..1."""
    out = torch.empty(len(products), dtype=torch.float32, device=products.device)
    grid = (triton.cdiv(len(products), SUMMED_ROWS),)
    launch(_sum_taps, grid, products, bias, out, len(products), TAPS=taps, ROWS=SUMMED_ROWS)
    return out


def last_conv(active: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, launch: Launch = run) -> torch.Tensor:
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

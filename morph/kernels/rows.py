"""Between GEMMs of several rows: residual addition with RMSNorm, SwiGLU, and RoPE; one memory pass each.

RoPE of queries and keys comes after RMSNorm if there is one, and before the write of keys and values to the cache.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..model.layers import Angles, KvTarget, RowOps
from .pdl import launch_dependents, wait_for_inputs
from .precompile import Launch, run

COLUMNS = 1024  # per program
HEADS = 8  # per program of ``rotate_and_store``


@triton.jit
def normed_row(values, gains, eps, WIDTH: tl.constexpr):
    """Return the RMSNorm of one row of WIDTH values, float32; the surplus must be zeros."""
    return values * tl.rsqrt(tl.sum(values * values, axis=0) / WIDTH + eps) * gains


@triton.jit
def add_and_norm(
    states, added, scale, gain, sums, normed, eps,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr = 1, PDL: tl.constexpr = False,
):  # fmt: skip
    """``sums = states + scale * added`` and its RMSNorm, float32 inside; program ``row`` of ``[R, WIDTH]``."""
    # ``states`` None: zeros; ``scale`` [WIDTH] None: 1; ``added`` [SPLITS, R, WIDTH]. The rounded sum is normed.
    launch_dependents(PDL)
    row = tl.program_id(0).to(tl.int64) * WIDTH
    columns = tl.arange(0, BLOCK)
    mask = columns < WIDTH
    gains = tl.load(gain + columns, mask=mask, other=0.0).to(tl.float32)
    wait_for_inputs(PDL)
    total = tl.load(added + row + columns, mask=mask, other=0.0).to(tl.float32)
    for split in tl.static_range(1, SPLITS):
        partials = added + split * tl.num_programs(0).to(tl.int64) * WIDTH
        total += tl.load(partials + row + columns, mask=mask, other=0.0).to(tl.float32)
    if scale is not None:
        total *= tl.load(scale + columns, mask=mask, other=0.0).to(tl.float32)
    if states is not None:
        total += tl.load(states + row + columns, mask=mask, other=0.0).to(tl.float32)
    total = total.to(sums.dtype.element_ty)
    tl.store(sums + row + columns, total, mask=mask)
    scaled = normed_row(total.to(tl.float32), gains, eps, WIDTH)
    tl.store(normed + row + columns, scaled.to(normed.dtype.element_ty), mask=mask)


@triton.jit
def swiglu(gate_up, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr = False):
    """``silu(gate) * up``: ``[R, 2 WIDTH]`` to ``[R, WIDTH]``, float32 inside; program ``(row, block of WIDTH)``."""
    launch_dependents(PDL)
    wait_for_inputs(PDL)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    value = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * WIDTH + columns, value.to(out.dtype.element_ty), mask=mask)


class RowKernels(RowOps):
    """``RowOps`` in these kernels."""

    launch: Launch = staticmethod(run)

    def gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate_up = gate_up.contiguous()
        width = gate_up.shape[-1] // 2
        out = gate_up.new_empty(*gate_up.shape[:-1], width)
        block = min(COLUMNS, triton.next_power_of_2(width))
        grid = gate_up.shape[:-1].numel(), triton.cdiv(width, block)
        self.launch(swiglu, grid, gate_up, out, WIDTH=width, BLOCK=block)
        return out

    def add_norm(
        self,
        states: torch.Tensor,
        added: torch.Tensor,
        gain: torch.Tensor,
        eps: float,
        scale: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        states, added = states.contiguous(), added.contiguous()
        sums, normed = torch.empty_like(states), torch.empty_like(states)
        width = states.shape[-1]
        self.launch(
            add_and_norm, (states.shape[:-1].numel(),), states, added, scale, gain, sums, normed, eps,
            WIDTH=width, BLOCK=triton.next_power_of_2(width),
        )  # fmt: skip
        return sums, normed


@triton.jit(do_not_specialize=("length",))
def rotate_and_store(
    qkv, gains, eps, cos, sin, out, keys, values, lines, slots, stride, head_stride, length,
    HEADS: tl.constexpr, COUNT: tl.constexpr, KEPT: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """RMSNorm and RoPE of some heads of one row, float32 inside; program ``(row, block of heads)``.

    Args:
        qkv: ``[R, COUNT + KV, D]``: HEADS queries, KV = COUNT - HEADS keys, and as many values; row i is new position
            ``i % length`` of line ``i // length``.
        gains: the norms' weights, float32 ``[COUNT, D]``; None: no norm.
        cos, sin: float32 ``[length, D]``, or with ``slots`` ``[R, D]``; the first half of the sines is negated.
        out: ``[R, KEPT, D]``: the queries, or queries and keys.
        keys, values: ``[B, KV, T, D]``, strides of B and KV.
        lines: int64, each line's index in B; None: its number.
        slots: int64 ``[R]``, each row's index in T; None: its position.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, D // 2)[None, :]
    mask = (head < COUNT) & (column < D // 2)
    source = qkv + row * (2 * COUNT - HEADS) * D
    offsets = head * D + column
    low = tl.load(source + offsets, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(source + offsets + D // 2, mask=mask, other=0.0).to(tl.float32)
    if gains is not None:
        squares = tl.sum(low * low + high * high, axis=1)
        scale = tl.rsqrt(squares / D + eps)[:, None]
        low *= scale * tl.load(gains + offsets, mask=mask, other=0.0)
        high *= scale * tl.load(gains + offsets + D // 2, mask=mask, other=0.0)
    line = row // length if lines is None else tl.load(lines + row // length)
    slot = row % length if slots is None else tl.load(slots + row)
    angle = (row % length if slots is None else row) * D + column
    rotated_low = low * tl.load(cos + angle) + high * tl.load(sin + angle)
    rotated_high = high * tl.load(cos + angle + D // 2) + low * tl.load(sin + angle + D // 2)
    dtype = out.dtype.element_ty
    kept, is_key = mask & (head < KEPT), mask & (head >= HEADS)
    target = out + row * KEPT * D + offsets
    tl.store(target, rotated_low.to(dtype), mask=kept)
    tl.store(target + D // 2, rotated_high.to(dtype), mask=kept)
    place = line * stride + (head - HEADS) * head_stride + slot * D + column
    tl.store(keys + place, rotated_low.to(dtype), mask=is_key)
    tl.store(keys + place + D // 2, rotated_high.to(dtype), mask=is_key)
    value = source + (head + COUNT - HEADS) * D + column
    tl.store(values + place, tl.load(value, mask=is_key), mask=is_key)
    tl.store(values + place + D // 2, tl.load(value + D // 2, mask=is_key), mask=is_key)


def rotate(
    launch: Launch, qkv: torch.Tensor, angles: Angles, target: KvTarget, norm: tuple[torch.Tensor, float] | None = None
) -> torch.Tensor:
    """Rotate ``qkv`` ``[B, N, COUNT + KV, D]``; return the queries, and with a ``norm`` the keys after them."""
    qkv, (gains, eps) = qkv.contiguous(), norm or (None, 0.0)
    kv_heads, head_dim = target.keys.shape[1], qkv.shape[3]
    count = qkv.shape[2] - kv_heads
    kept = count - kv_heads if gains is None else count
    out = qkv.new_empty(*qkv.shape[:2], kept, head_dim)
    block = min(HEADS, triton.next_power_of_2(count))
    launch(
        rotate_and_store, (out.shape[:2].numel(), triton.cdiv(count, block)), qkv, gains, eps, angles.cos.contiguous(),
        angles.sin.contiguous(), out, target.keys, target.values, target.lines, target.slots, target.keys.stride(0),
        target.keys.stride(1), qkv.shape[1], HEADS=count - kv_heads, COUNT=count, KEPT=kept, D=head_dim, BLOCK=block,
    )  # fmt: skip
    return out

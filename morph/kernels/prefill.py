"""Between the linear layers of a prefill: RMSNorm and RoPE of queries and keys, and SwiGLU, one memory pass each.

A prefill's linear layers are cuBLAS's. Torch's operations between them write queries and keys to memory five times in
float32: of the 28 ms that 64 prompts of 88 positions took (0.6B, H200), the linear layers were 7.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..model.layers import Angles, LayerOps

HEADS = 8  # per program
COLUMNS = 1024  # per program


@triton.jit(do_not_specialize=("length",))
def turn_heads(
    heads, stride, gains, cos, sin, out, length, eps, COUNT: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """RMSNorm and RoPE of some heads of one position, float32 inside; program ``(row, block of heads)``.

    Args:
        heads: ``[R, COUNT, D]``, rows ``stride`` apart; row i is at position ``i % length``.
        gains: float32 ``[COUNT, D]``.
        cos, sin: float32 ``[length, D]``; the first half of the sines is negated.
        out: ``[R, COUNT, D]``.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, D // 2)[None, :]
    mask = (head < COUNT) & (column < D // 2)
    offsets = head * D + column
    low = tl.load(heads + row * stride + offsets, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(heads + row * stride + offsets + D // 2, mask=mask, other=0.0).to(tl.float32)
    squares = tl.sum(low * low + high * high, axis=1)
    scale = tl.rsqrt(squares / D + eps)[:, None]
    low *= scale * tl.load(gains + offsets, mask=mask, other=0.0)
    high *= scale * tl.load(gains + offsets + D // 2, mask=mask, other=0.0)
    angle = (row % length) * D + column
    turned_low = low * tl.load(cos + angle) + high * tl.load(sin + angle)
    turned_high = high * tl.load(cos + angle + D // 2) + low * tl.load(sin + angle + D // 2)
    out += row * COUNT * D + offsets
    tl.store(out, turned_low.to(out.dtype.element_ty), mask=mask)
    tl.store(out + D // 2, turned_high.to(out.dtype.element_ty), mask=mask)


@triton.jit
def swiglu(gate_up, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """``silu(gate) * up``: ``[R, 2 WIDTH]`` to ``[R, WIDTH]``, float32 inside; program ``(row, block of WIDTH)``."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + columns, mask=mask, other=0.0).to(tl.float32)
    value = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * WIDTH + columns, value.to(out.dtype.element_ty), mask=mask)


class PromptOps(LayerOps):
    """``LayerOps`` of a pass whose lines are all at the same positions (``Angles.span``), as prompts are."""

    def turn(self, heads: torch.Tensor, head_norms: torch.Tensor, angles: Angles, eps: float) -> torch.Tensor:
        """As ``LayerOps.turn``."""
        lines, length, count, head_dim = heads.shape
        rows = heads.reshape(lines * length, -1)
        out = torch.empty_like(heads, memory_format=torch.contiguous_format)
        block = min(HEADS, triton.next_power_of_2(count))
        turn_heads[(len(rows), triton.cdiv(count, block))](
            rows, rows.stride(0), head_norms, angles.cos, angles.sin, out, length, eps,
            COUNT=count, D=head_dim, BLOCK=block,
        )  # fmt: skip
        return out

    def gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        """As ``LayerOps.gate``."""
        gate_up = gate_up.contiguous()
        width = gate_up.shape[-1] // 2
        out = gate_up.new_empty(*gate_up.shape[:-1], width)
        block = min(COLUMNS, triton.next_power_of_2(width))
        swiglu[(gate_up.shape[:-1].numel(), triton.cdiv(width, block))](
            gate_up, out, WIDTH=width, BLOCK=block
        )
        return out

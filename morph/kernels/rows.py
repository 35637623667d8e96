"""Residual addition with RMSNorm, and SwiGLU, between GEMMs of several rows: one memory pass each."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..model.layers import RowOps
from .pdl import launch_dependents, wait_for_inputs
from .precompile import Launch, run

COLUMNS = 1024  # per program


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

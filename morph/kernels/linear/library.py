"""Linear layers of many rows: cuBLAS's product, and one kernel after it for what ours fuse.

The rows are read after their norm, as the residual stream's writer left them (``Residual.scaled`` without
``squares``). Products are rounded to the model's dtype, as in torch; sums, norms and SwiGLU are float32.
"""

from __future__ import annotations

import torch
import triton

from ...model.weights.linear import split_scales
from ..plan import Plan, launch
from ..rows import COLUMNS, add_and_norm, swiglu
from ..states import Inputs, Residual
from .projection import Projection

WARPS = 4  # per program of the kernels after a product


def multiply(plan: Plan, x: Inputs | Residual, out: torch.Tensor, projection: Projection) -> None:
    """Compute a linear layer, not INT8, into ``out`` ``[rows, N]`` from rows after their norm."""
    weight, scales = split_scales(projection.weight)
    if scales is not None or (isinstance(x, Residual) and x.squares is not None):
        raise ValueError("cuBLAS multiplies no INT8 weights, and rows after their norm only: use our kernels")
    operand = x.operand(plan)
    stream = projection.residual or projection.starts
    is_last = stream is None and not projection.gated
    product = out if is_last else plan.empty("product", (len(out), len(weight)), operand)
    if projection.bias is None:
        torch.mm(operand, weight.t(), out=product)
    else:
        torch.addmm(projection.bias, operand, weight.t(), out=product)
    if projection.gated:
        _gate(plan, product, out)
    if stream is not None:
        add_product(plan, product, stream, projection)
    if projection.normed_copy is not None:
        # Not a copy: that is a memory copy, and the next kernel may only overlap with a kernel.
        torch.mul(operand, 1, out=projection.normed_copy)


def _gate(plan: Plan, gate_up: torch.Tensor, out: torch.Tensor) -> None:
    rows, width = out.shape
    block = min(COLUMNS, triton.next_power_of_2(width))
    launch(
        swiglu, (rows, triton.cdiv(width, block)), plan, WARPS, gate_up=gate_up, out=out, WIDTH=width, BLOCK=block
    )  # fmt: skip


def add_product(plan: Plan, product: torch.Tensor, stream: Residual, projection: Projection) -> None:
    """Add a product ``[R, H]``, or its split-K partials, to the residual stream, or start it; norm the rows."""
    rows, width = product.shape[-2:]
    launch(
        add_and_norm, (rows,), plan, WARPS, states=None if projection.residual is None else stream.values,
        added=product, scale=None, gain=projection.next_norm, sums=stream.values, normed=stream.operand(plan),
        eps=projection.eps, WIDTH=width, BLOCK=triton.next_power_of_2(width),
        SPLITS=1 if product.dim() == 2 else len(product),
    )  # fmt: skip

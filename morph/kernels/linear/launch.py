"""Launch a linear layer: choose its kernel and tile."""

from typing import Any

import torch
import triton

from ...model.weights import split_scales
from ..plan import SUM_WIDTH, Plan, launch
from ..rows import COLUMNS, add_and_norm, swiglu
from ..states import Inputs, Projection, Residual
from .gemm import gemm, reduce_split_k
from .gemv import gemv
from .tiles import GemmShape, GemmTile, GemvShape, gemm_tile, gemv_tile, library_tile, prefetches

REDUCE_BLOCK = 128  # outputs per program of reduce_split_k: one per thread, so all loads are in flight
WARPS = 4  # per program of the kernels after a GEMM


Arguments = dict[str, Any]  # of a kernel
# The arguments of a GEMM's epilogue, shared with ``reduce_split_k``.
NO_EPILOGUE: Arguments = dict.fromkeys(("bias", "residual", "next_gain", "next_scaled", "next_squares"))


def as_words(values: torch.Tensor) -> torch.Tensor:
    return values.view(torch.int32) if values.dtype == torch.int8 else values


def project(plan: Plan, x: Inputs | Residual, out: torch.Tensor, projection: Projection) -> None:
    """Compute a linear layer into ``out`` ``[rows, N]``, with the kernel that ``linear/__init__.py`` names.

    Above ``plan.gemv_max_rows`` rows, the writer of a residual stream before a norm must have scaled it by that
    norm's weight (``Projection.next_norm``).
    """
    if len(out) <= plan.gemv_max_rows:
        _launch_gemv(plan, x, out, projection)
    elif not plan.uses_library(len(out)):
        _launch_gemm(plan, x, out, projection)
    elif (split := _library_split(plan, out, projection)) is not None:
        _launch_gemm(plan, x, out, projection, split)
    else:
        multiply(plan, x, out, projection)


def _launch_gemv(plan: Plan, x: Inputs | Residual, out: torch.Tensor, projection: Projection) -> None:
    rows, outputs = out.shape
    values, scales = split_scales(projection.weight)
    width = values.shape[1]
    partials, residual = projection.partials, projection.residual
    warps = plan.gemv_reduce_warps if partials is not None and residual is None else plan.gemv_warps
    shape = GemvShape(outputs, width, values.element_size(), 2 if projection.gated else 1)
    programs, tile = gemv_tile(plan, shape, warps)
    start = x if isinstance(x, Inputs) else Inputs(x.values)  # the kernel looks up tokens itself
    launch(
        gemv, (programs,), plan, warps, dependent=start.hidden is None, x=start.states,
        hidden=start.hidden, tokens=start.tokens, token_stride=0 if start.tokens is None else start.tokens.stride(0),
        partials=partials, gain=projection.norm, eps=projection.eps, weight=as_words(values), scales=scales,
        bias=projection.bias, residual=None if residual is None else residual.values, out=out,
        input_copy=projection.input_copy, normed=projection.normed_copy, M=rows, K=width, N=outputs,
        SPLIT_K=0 if partials is None else len(partials), GATED=projection.gated, **tile,
    )  # fmt: skip


def _launch_gemm(
    plan: Plan, x: Inputs | Residual, out: torch.Tensor, projection: Projection, split: GemmTile | None = None
) -> None:
    """Launch a GEMM; ``split`` is of ``_library_split``."""
    rows, outputs = out.shape
    values, scales = split_scales(projection.weight)
    width, operand = values.shape[1], x.operand(plan)
    normed = projection.normed_copy
    squares = x.squares if isinstance(x, Residual) and projection.norm is not None else None
    product = {
        "x": operand, "squares": squares, "eps": projection.eps, "weight": values, "M": rows, "K": width, "N": outputs,
        "GATED": projection.gated,
    }  # fmt: skip
    # INT8 weights are multiplied in the rows' dtype.
    shape = GemmShape(
        rows, outputs, width, operand.element_size(), projection.gated,
        may_hold=normed is None and scales is None, may_split=normed is None,
    )  # fmt: skip
    tile = split or gemm_tile(plan, shape)
    unscaled = None if normed is None else x.values if isinstance(x, Residual) else x.states
    only = {"scales": scales, "gain": projection.norm, "unscaled": unscaled, "normed": normed}
    epilogue = _epilogue(plan, out, projection)
    if tile.split_k == 1:
        _launch_tile(plan, tile, product, epilogue, only)
        return
    partials = plan.empty("split-K partials", (tile.split_k, rows, outputs), operand, torch.float32)
    _launch_tile(plan, tile, product, NO_EPILOGUE | {"out": partials}, only)
    if split is not None and projection.residual is not None:
        add_product(plan, partials, projection.residual, projection)
        return
    launch(
        reduce_split_k, (rows, -(-outputs // REDUCE_BLOCK)), plan, 4, partials=partials, M=rows, N=outputs,
        SPLIT_K=tile.split_k, COLUMNS=REDUCE_BLOCK, **epilogue,
    )  # fmt: skip


def _library_split(plan: Plan, out: torch.Tensor, projection: Projection) -> GemmTile | None:
    """Return the tile of our split-K GEMM of many rows that is added to the residual stream; None for cuBLAS."""
    values, scales = split_scales(projection.weight)
    if projection.residual is None or projection.bias is not None or scales is not None:
        return None
    rows, outputs = out.shape
    return library_tile(plan, GemmShape(rows, outputs, values.shape[1], values.element_size()))


def _epilogue(plan: Plan, out: torch.Tensor, projection: Projection) -> Arguments:
    target = projection.residual or projection.starts
    epilogue = NO_EPILOGUE | {"out": out, "bias": projection.bias, "next_gain": projection.next_norm}
    if projection.residual is not None:
        epilogue["residual"] = projection.residual.values
    if target is not None:
        epilogue |= {"next_scaled": target.operand(plan), "next_squares": target.squares}
    return epilogue


def _launch_tile(plan: Plan, tile: GemmTile, product: Arguments, epilogue: Arguments, only: Arguments) -> None:
    grid = (-(-product["N"] // tile.block_n), -(-product["M"] // tile.block_m), tile.split_k)
    arguments = product | epilogue
    arguments |= {"BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n, "BLOCK_K": tile.block_k}
    arguments |= {"STAGES": tile.stages, "SPLIT_K": tile.split_k}
    arguments["SUMS"] = triton.next_power_of_2(-(-product["K"] // SUM_WIDTH))
    if tile.held:
        from .gemm_held import gemm_folded, gemm_held  # Gluon: not every Triton has it

        arguments |= {"FOLDS": tile.folds} if tile.folds else {}
        launch(gemm_folded if tile.folds else gemm_held, grid, plan, tile.warps, **arguments)
        return
    row_bytes = product["K"] // tile.split_k * product["weight"].element_size()
    arguments["PREFETCH"] = prefetches(plan, tile, product["N"], row_bytes)
    arguments["NORMED_COLUMNS"] = max(16, triton.next_power_of_2(-(-product["K"] // grid[0])))
    launch(gemm, grid, plan, tile.warps, **arguments, **only)


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
        block = min(COLUMNS, triton.next_power_of_2(out.shape[1]))
        grid = len(out), triton.cdiv(out.shape[1], block)
        launch(swiglu, grid, plan, WARPS, gate_up=product, out=out, WIDTH=out.shape[1], BLOCK=block)
    if stream is not None:
        add_product(plan, product, stream, projection)
    if projection.normed_copy is not None:
        # Not a copy: that is a memory copy, and the next kernel may only overlap with a kernel.
        torch.mul(operand, 1, out=projection.normed_copy)


def add_product(plan: Plan, product: torch.Tensor, stream: Residual, projection: Projection) -> None:
    """Add a GEMM's result ``[R, H]``, or its split-K partials, to the residual stream, or start it; apply the norm."""
    rows, width = product.shape[-2:]
    launch(
        add_and_norm, (rows,), plan, WARPS, states=None if projection.residual is None else stream.values,
        added=product, scale=None, gain=projection.next_norm, sums=stream.values, normed=stream.operand(plan),
        eps=projection.eps, WIDTH=width, BLOCK=triton.next_power_of_2(width),
        SPLITS=1 if product.dim() == 2 else len(product),
    )  # fmt: skip

"""GEMM for more than two rows, on the tensor cores through ``tl.dot``: any GPU, any shape, and the interpreter.

The writer of the residual stream also leaves it multiplied by the next norm's weight, in the model's dtype, and the
sums of its squares, SUM_WIDTH columns each (``store_scaled``). A GEMM multiplies the former as it is and applies
RMSNorm's scale to the result, so both operands reach shared memory through the compiler's pipeline, with STAGES
steps in flight. Before the wait a program only prefetches its weights into the L2 cache (PREFETCH). Operands have the
model's dtype (float32 models multiply in float32), sums are float32.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

from .. import plan
from ..pdl import launch_dependents, wait_for_inputs
from .gemv import load_scales, silu

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
SUM_WIDTH = tl.constexpr(plan.SUM_WIDTH)


@triton.jit
def dot(left, right, sums):
    """Return ``sums + left @ right``, in float32 if ``left`` is float32; an INT8 ``right`` is widened."""
    # Triton's interpreter stores bf16 as integers and would multiply those, so both operands are widened there.
    right = right.to(left.dtype)
    if INTERPRETED:
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, sums, input_precision="ieee")


@triton.jit
def prefetch_rows(weight, first, stride, ROWS: tl.constexpr, BYTES: tl.constexpr):
    """Prefetch BYTES of each of ROWS rows into the L2 cache, one thread per row (compute capability 9.0)."""
    rows = first + tl.arange(0, ROWS)
    pointers = weight + rows.to(tl.int64) * stride
    tl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x; setp.lt.u32 p, t, $2; "
        "@p cp.async.bulk.prefetch.L2.global [$1], $3; mov.u32 $0, 0; }",
        "=r,l,r,r",
        [pointers, ROWS, BYTES],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _load_weights(
    weight, first, start, N: tl.constexpr, K: tl.constexpr, END: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K:
    tl.constexpr,
):  # fmt: skip
    """Load columns ``start ..``, up to END, of the weights of outputs ``first ..``: ``[BLOCK_K, BLOCK_N]``."""
    outputs = first + tl.arange(0, BLOCK_N)
    columns = start + tl.arange(0, BLOCK_K)
    pointers = weight + outputs[None, :].to(tl.int64) * K + columns[:, None]
    if END % BLOCK_K == 0 and N % BLOCK_N == 0:
        return tl.load(pointers)
    return tl.load(pointers, mask=(outputs < N)[None, :] & (columns < END)[:, None], other=0.0)


@triton.jit
def _load_x(x, rows, M, start, K: tl.constexpr, END: tl.constexpr, BLOCK_K: tl.constexpr):
    columns = start + tl.arange(0, BLOCK_K)
    mask = (rows < M)[:, None]
    if END % BLOCK_K != 0:
        mask = mask & (columns < END)[None, :]
    return tl.load(x + rows[:, None] * K + columns[None, :], mask=mask, other=0.0)


@triton.jit
def _load_squares(squares, rows, M, K: tl.constexpr, SUMS: tl.constexpr):
    sums = tl.arange(0, SUMS)
    mask = (sums < (K + SUM_WIDTH - 1) // SUM_WIDTH)[:, None] & (rows < M)[None, :]
    return tl.load(squares + sums[:, None] * M + rows[None, :], mask=mask, other=0.0)


@triton.jit
def load_gains(gain, first, N: tl.constexpr, COLUMNS: tl.constexpr):
    """Load COLUMNS of the next norm's weight ``[N]`` from ``first`` on; None without one."""
    gains = None
    if gain is not None:
        columns = first + tl.arange(0, COLUMNS)
        gains = tl.load(gain + columns, mask=columns < N, other=0.0)
    return gains


@triton.jit
def store_scaled(values, gains, scaled, squares, rows, first, M, N: tl.constexpr):
    """Store columns ``first ..`` of the residual stream, float32 ``[R, C]``, as the next GEMM reads them.

    The values must be zeros from column N on. ``scaled`` ``[M, N]`` gets them times the next norm's ``gains``
    ``[C]``, ``squares``, float32 ``[N / SUM_WIDTH, M]``, the sums of their squares.
    """
    columns = first + tl.arange(0, values.shape[1])
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(
        scaled + rows[:, None] * N + columns[None, :],
        (values * gains[None, :].to(tl.float32)).to(scaled.dtype.element_ty),
        mask=mask,
    )
    GROUPS: tl.constexpr = values.shape[1] // SUM_WIDTH
    sums = tl.sum(tl.reshape(values * values, (values.shape[0], GROUPS, SUM_WIDTH)), axis=2)
    groups = first // SUM_WIDTH + tl.arange(0, GROUPS)
    mask = (rows < M)[:, None] & (groups < (N + SUM_WIDTH - 1) // SUM_WIDTH)[None, :]
    tl.store(squares + groups[None, :] * M + rows[:, None], sums, mask=mask)


@triton.jit
def gemm(
    x, squares, eps, weight, scales, bias, residual, out, next_gain, next_scaled, next_squares, unscaled, gain, normed,
    M, K: tl.constexpr, N: tl.constexpr, GATED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, STAGES: tl.constexpr, SPLIT_K: tl.constexpr, PREFETCH: tl.constexpr,
    SUMS: tl.constexpr, NORMED_COLUMNS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """``out = W norm(x)`` for M rows; program ``(outputs, rows, split)`` has a BLOCK_M x BLOCK_N tile of out.

    With SPLIT_K > 1, not GATED, each split multiplies K / SPLIT_K columns, and out is float32 ``[SPLIT_K, M, N]``:
    ``reduce_split_k`` adds the partials up and applies the epilogue.

    Args (None if not used):
        x: ``[M, K]`` in the model's dtype; before a norm, already multiplied by the norm's weight.
        squares: float32 ``[K / SUM_WIDTH, M]``, before a norm: the sums of the rows' squares.
        weight: ``[N, K]``; when GATED ``[2 N, K]``, gates first, and ``out = silu(gate) * up``.
        scales: of INT8 weights, ``[N]`` or ``[2 N]``; bias: ``[N]``.
        residual: float32 ``[M, N]``, added to the result; out: ``[M, N]``.
        next_gain, next_scaled, next_squares: of ``store_scaled``, for the next GEMM.
        normed: ``[M, K]``, gets ``unscaled`` float32 ``[M, K]`` after the norm of weight ``gain`` ``[K]``,
            NORMED_COLUMNS per program.
    """
    launch_dependents(PDL)
    first = tl.program_id(0) * BLOCK_N
    columns = first + tl.arange(0, BLOCK_N)
    SPAN: tl.constexpr = K // SPLIT_K  # the columns that this program multiplies
    x += tl.program_id(2) * SPAN
    weight += tl.program_id(2) * SPAN
    out += tl.program_id(2) * M * N
    if PREFETCH:  # before the wait: no kernel writes weights
        WIDTH: tl.constexpr = SPAN * weight.dtype.element_ty.primitive_bitwidth // 8
        prefetch_rows(weight, first, K, BLOCK_N, WIDTH)
        if GATED:
            prefetch_rows(weight, N + first, K, BLOCK_N, WIDTH)
    wait_for_inputs(PDL)
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    if squares is not None:  # loaded here, so that it arrives while the loop runs
        row_squares = _load_squares(squares, rows, M, K, SUMS)
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    up_sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(0, SPAN, BLOCK_K, num_stages=STAGES):
        values = _load_x(x, rows, M, start, K, SPAN, BLOCK_K)
        tile = _load_weights(weight, first, start, N, K, SPAN, BLOCK_N, BLOCK_K)
        sums = dot(values, tile, sums)
        if GATED:
            up_tile = _load_weights(weight + N * K, first, start, N, K, SPAN, BLOCK_N, BLOCK_K)
            up_sums = dot(values, up_tile, up_sums)
    sums *= load_scales(scales, columns, columns < N)[None, :]
    if GATED:
        up_sums *= load_scales(scales, columns + N, columns < N)[None, :]
    if squares is not None:
        scale = tl.rsqrt(tl.sum(row_squares, axis=0) / K + eps)[:, None]
        sums *= scale
        up_sums *= scale
        if normed is not None:
            _store_normed(unscaled, gain, scale, rows, M, normed, K, NORMED_COLUMNS)
    result = silu(sums) * up_sums if GATED else sums
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    offsets = rows[:, None] * N + columns[None, :]
    if bias is not None:
        result += tl.load(bias + columns, mask=columns < N, other=0.0)[None, :].to(tl.float32)
    if residual is not None:
        result += tl.load(residual + offsets, mask=mask, other=0.0)
    tl.store(out + offsets, result.to(out.dtype.element_ty), mask=mask)
    if next_scaled is not None:
        gains = load_gains(next_gain, first, N, BLOCK_N)
        store_scaled(result, gains, next_scaled, next_squares, rows, first, M, N)


@triton.jit
def _store_normed(unscaled, gain, scale, rows, M, normed, K: tl.constexpr, NORMED_COLUMNS: tl.constexpr):
    columns = tl.program_id(0) * NORMED_COLUMNS + tl.arange(0, NORMED_COLUMNS)
    mask = (rows < M)[:, None] & (columns < K)[None, :]
    offsets = rows[:, None] * K + columns[None, :]
    gains = tl.load(gain + columns, mask=columns < K, other=0.0)[None, :].to(tl.float32)
    values = tl.load(unscaled + offsets, mask=mask, other=0.0) * gains * scale
    tl.store(normed + offsets, values.to(normed.dtype.element_ty), mask=mask)


@triton.jit
def reduce_split_k(
    partials, bias, residual, out, next_gain, next_scaled, next_squares, M,
    N: tl.constexpr, SPLIT_K: tl.constexpr, COLUMNS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add up partials ``[SPLIT_K, M, N]`` in order, and apply ``gemm``'s epilogue; program ``(row, outputs)``."""
    launch_dependents(PDL)
    row = tl.program_id(0)
    first = tl.program_id(1) * COLUMNS
    columns = first + tl.arange(0, COLUMNS)
    mask = columns < N
    gains = load_gains(next_gain, first, N, COLUMNS)
    wait_for_inputs(PDL)
    loaded = ()  # all loads are in flight before the first addition
    for split in tl.static_range(SPLIT_K):
        loaded = loaded + (tl.load(partials + (split * M + row) * N + columns, mask=mask, other=0.0),)
    result = tl.zeros((COLUMNS,), tl.float32)
    for split in tl.static_range(SPLIT_K):
        result += loaded[split]
    if bias is not None:
        result += tl.load(bias + columns, mask=mask, other=0.0).to(tl.float32)
    if residual is not None:
        result += tl.load(residual + row * N + columns, mask=mask, other=0.0)
    tl.store(out + row * N + columns, result.to(out.dtype.element_ty), mask=mask)
    if next_scaled is not None:
        rows = row + tl.arange(0, 1)
        store_scaled(result[None, :], gains, next_scaled, next_squares, rows, first, M, N)

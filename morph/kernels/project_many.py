"""The products of ``project.py`` for more states than two, on the tensor cores.

Nothing stands between memory and the multiplication: who makes the states leaves them multiplied by the weight of the
norm that comes next, in the model's dtype, and beside them the sums of their squares, SHARE columns each; a product
takes both as they are, and applies RMSNorm's scale behind itself. So both operands go to shared memory through the
compiler's pipeline, STAGES segments on their way together. Before the wait a program only asks for its weights to be
brought into the L2 cache (PREFETCH).

Products are of the model's dtype, sums are float32; float32 models multiply in float32 too.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

from .project import load_scales, silu
from .wait import launch_dependents, wait_for_inputs

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
SHARE = tl.constexpr(16)  # columns of a state whose squares are summed up together


@triton.jit
def dot(left, right, sums):
    """``sums + left right``, in float32 where the left is; an INT8 right is widened.

    Triton's interpreter takes bf16 operands for the integers that it keeps them in, so they are widened there.
    """
    right = right.to(left.dtype)
    if INTERPRETED:
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, sums, input_precision="ieee")


@triton.jit
def prefetch_rows(weight, first, ROWS: tl.constexpr, BYTES: tl.constexpr):
    """Bring ROWS rows of BYTES each into the L2 cache (compute capability 9.0): a thread a row, ROWS threads in all."""
    rows = first + tl.arange(0, ROWS)
    pointers = weight + rows.to(tl.int64) * (BYTES // (weight.dtype.element_ty.primitive_bitwidth // 8))
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
    weight, first, start, N: tl.constexpr, K: tl.constexpr, COLUMNS: tl.constexpr, SEGMENT: tl.constexpr
):
    """A segment of the weights of outputs ``first ..``, ``[SEGMENT, COLUMNS]``."""
    columns = first + tl.arange(0, COLUMNS)
    places = start + tl.arange(0, SEGMENT)
    pointers = weight + columns[None, :].to(tl.int64) * K + places[:, None]
    if K % SEGMENT == 0 and N % COLUMNS == 0:
        return tl.load(pointers)
    return tl.load(pointers, mask=(columns < N)[None, :] & (places < K)[:, None], other=0.0)


@triton.jit
def _load_states(x, rows, states, start, K: tl.constexpr, SEGMENT: tl.constexpr):
    """A segment of the states, ``[PADDED, SEGMENT]``."""
    places = start + tl.arange(0, SEGMENT)
    mask = (rows < states)[:, None]
    if K % SEGMENT != 0:
        mask = mask & (places < K)[None, :]
    return tl.load(x + rows[:, None] * K + places[None, :], mask=mask, other=0.0)


@triton.jit
def _load_squares(squares, rows, states, K: tl.constexpr, SHARES: tl.constexpr):
    """The states' sums of squares, a share of the columns each: ``[SHARES, PADDED]``, as many as there are or more."""
    shares = tl.arange(0, SHARES)
    mask = (shares < (K + SHARE - 1) // SHARE)[:, None] & (rows < states)[None, :]
    return tl.load(squares + shares[:, None] * states + rows[None, :], mask=mask, other=0.0)


@triton.jit
def store_operand(values, gain, operand, squares, rows, columns, states, N: tl.constexpr):
    """Leave float32 states ``[R, C]``, zeros from column N on, for the next product.

    Args:
        gain: the next norm's weight ``[N]``.
        operand: ``[states, N]`` in the model's dtype, the states times gain.
        squares: float32 ``[N / SHARE, states]``.
    """
    mask = (rows < states)[:, None] & (columns < N)[None, :]
    gains = tl.load(gain + columns, mask=columns < N, other=0.0)[None, :].to(tl.float32)
    tl.store(
        operand + rows[:, None] * N + columns[None, :],
        (values * gains).to(operand.dtype.element_ty),
        mask=mask,
    )
    GROUPS: tl.constexpr = values.shape[1] // SHARE
    sums = tl.sum(tl.reshape(values * values, (values.shape[0], GROUPS, SHARE)), axis=2)
    shares = tl.min(columns, axis=0) // SHARE + tl.arange(0, GROUPS)
    mask = (rows < states)[:, None] & (shares < (N + SHARE - 1) // SHARE)[None, :]
    tl.store(squares + shares[None, :] * states + rows[:, None], sums, mask=mask)


@triton.jit
def project_many(
    x, squares, eps, weight, scales, bias, residual, out, next_gain, next_operand, next_squares, wide, gain, normed,
    states, K: tl.constexpr, N: tl.constexpr, GATED: tl.constexpr, PADDED: tl.constexpr, COLUMNS: tl.constexpr,
    SEGMENT: tl.constexpr, STAGES: tl.constexpr, PREFETCH: tl.constexpr, SHARES: tl.constexpr,
    NORMED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """``out = W norm(x)`` for ``states`` rows of x; program ``(outputs, rows)``.

    Args (None for what does not take part):
        x: ``[states, K]`` in the model's dtype; before a norm, times its weight, and
        squares: float32 ``[K / SHARE, states]``, the sums of the states' squares.
        weight: ``[N, K]``; when GATED ``[2 N, K]``, gates before ups, and ``out = silu(gate) up``.
        scales: of INT8 weights, ``[N]`` or ``[2 N]``.
        bias: ``[N]``.
        residual: float32 ``[states, N]``, added to the result.
        out: ``[states, N]``.
        next_gain, next_operand, next_squares: what ``store_operand`` leaves of the result.
        normed: ``[states, K]``, where each program leaves NORMED columns of the normed states, which it makes of
        wide: float32 ``[states, K]``, and gain: ``[K]``.
    """
    launch_dependents(PDL)
    first = tl.program_id(0) * COLUMNS
    columns = first + tl.arange(0, COLUMNS)
    if PREFETCH:
        WIDTH: tl.constexpr = K * weight.dtype.element_ty.primitive_bitwidth // 8
        prefetch_rows(weight, first, COLUMNS, WIDTH)
        if GATED:
            prefetch_rows(weight, N + first, COLUMNS, WIDTH)
    wait_for_inputs(PDL)
    rows = tl.program_id(1) * PADDED + tl.arange(0, PADDED)
    if squares is not None:
        shares = _load_squares(squares, rows, states, K, SHARES)
    sums = tl.zeros((PADDED, COLUMNS), tl.float32)
    up_sums = tl.zeros((PADDED, COLUMNS), tl.float32)
    for start in tl.range(0, K, SEGMENT, num_stages=STAGES):
        values = _load_states(x, rows, states, start, K, SEGMENT)
        tile = _load_weights(weight, first, start, N, K, COLUMNS, SEGMENT)
        sums = dot(values, tile, sums)
        if GATED:
            up_tile = _load_weights(weight + N * K, first, start, N, K, COLUMNS, SEGMENT)
            up_sums = dot(values, up_tile, up_sums)
    sums *= load_scales(scales, columns, columns < N)[None, :]
    if GATED:
        up_sums *= load_scales(scales, columns + N, columns < N)[None, :]
    if squares is not None:
        scale = tl.rsqrt(tl.sum(shares, axis=0) / K + eps)[:, None]
        sums *= scale
        up_sums *= scale
        if normed is not None:
            _store_normed(wide, gain, scale, rows, states, normed, K, NORMED)
    result = silu(sums) * up_sums if GATED else sums
    mask = (rows < states)[:, None] & (columns < N)[None, :]
    places = rows[:, None] * N + columns[None, :]
    if bias is not None:
        result += tl.load(bias + columns, mask=columns < N, other=0.0)[None, :].to(tl.float32)
    if residual is not None:
        result += tl.load(residual + places, mask=mask, other=0.0)
    tl.store(out + places, result.to(out.dtype.element_ty), mask=mask)
    if next_operand is not None:
        store_operand(result, next_gain, next_operand, next_squares, rows, columns, states, N)


@triton.jit
def _store_normed(wide, gain, scale, rows, states, normed, K: tl.constexpr, NORMED: tl.constexpr):
    places = tl.program_id(0) * NORMED + tl.arange(0, NORMED)
    mask = (rows < states)[:, None] & (places < K)[None, :]
    pointers = rows[:, None] * K + places[None, :]
    gains = tl.load(gain + places, mask=places < K, other=0.0)[None, :].to(tl.float32)
    values = tl.load(wide + pointers, mask=mask, other=0.0) * gains * scale
    tl.store(normed + pointers, values.to(normed.dtype.element_ty), mask=mask)

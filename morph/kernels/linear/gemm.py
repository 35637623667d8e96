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

from ..pdl import launch_dependents, wait_for_inputs
from .gemv import load_scales, silu

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
def prefetch_rows(weight, first, stride, ROWS: tl.constexpr, BYTES: tl.constexpr):
    """Bring BYTES of each of ROWS rows into the L2 cache (compute capability 9.0), a thread a row."""
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
    weight,
    first,
    start,
    N: tl.constexpr,
    K: tl.constexpr,
    END: tl.constexpr,
    COLUMNS: tl.constexpr,
    SEGMENT: tl.constexpr,
):
    """A segment before column END of the weights of outputs ``first ..``, ``[SEGMENT, COLUMNS]``."""
    columns = first + tl.arange(0, COLUMNS)
    places = start + tl.arange(0, SEGMENT)
    pointers = weight + columns[None, :].to(tl.int64) * K + places[:, None]
    if END % SEGMENT == 0 and N % COLUMNS == 0:
        return tl.load(pointers)
    return tl.load(pointers, mask=(columns < N)[None, :] & (places < END)[:, None], other=0.0)


@triton.jit
def _load_states(x, rows, states, start, K: tl.constexpr, END: tl.constexpr, SEGMENT: tl.constexpr):
    """A segment before column END of the states, ``[PADDED, SEGMENT]``."""
    places = start + tl.arange(0, SEGMENT)
    mask = (rows < states)[:, None]
    if END % SEGMENT != 0:
        mask = mask & (places < END)[None, :]
    return tl.load(x + rows[:, None] * K + places[None, :], mask=mask, other=0.0)


@triton.jit
def _load_squares(squares, rows, states, K: tl.constexpr, SHARES: tl.constexpr):
    """The states' sums of squares, a share of the columns each: ``[SHARES, PADDED]``, as many as there are or more."""
    shares = tl.arange(0, SHARES)
    mask = (shares < (K + SHARE - 1) // SHARE)[:, None] & (rows < states)[None, :]
    return tl.load(squares + shares[:, None] * states + rows[None, :], mask=mask, other=0.0)


@triton.jit
def load_gains(gain, first, N: tl.constexpr, COLUMNS: tl.constexpr):
    """The next norm's weight ``[N]`` for ``store_operand``: COLUMNS of it from ``first`` on; None of none."""
    gains = None
    if gain is not None:
        columns = first + tl.arange(0, COLUMNS)
        gains = tl.load(gain + columns, mask=columns < N, other=0.0)
    return gains


@triton.jit
def store_operand(values, gains, operand, squares, rows, first, states, N: tl.constexpr):
    """Leave columns ``first ..`` of float32 states, ``[R, C]``, zeros from column N on, for the next product.

    Args:
        gains: the next norm's weight of these columns ``[C]``.
        operand: ``[states, N]`` in the model's dtype, the states times gain.
        squares: float32 ``[N / SHARE, states]``.
    """
    columns = first + tl.arange(0, values.shape[1])
    mask = (rows < states)[:, None] & (columns < N)[None, :]
    tl.store(
        operand + rows[:, None] * N + columns[None, :],
        (values * gains[None, :].to(tl.float32)).to(operand.dtype.element_ty),
        mask=mask,
    )
    GROUPS: tl.constexpr = values.shape[1] // SHARE
    sums = tl.sum(tl.reshape(values * values, (values.shape[0], GROUPS, SHARE)), axis=2)
    shares = first // SHARE + tl.arange(0, GROUPS)
    mask = (rows < states)[:, None] & (shares < (N + SHARE - 1) // SHARE)[None, :]
    tl.store(squares + shares[None, :] * states + rows[:, None], sums, mask=mask)


@triton.jit
def project_many(
    x, squares, eps, weight, scales, bias, residual, out, next_gain, next_operand, next_squares, wide, gain, normed,
    states, K: tl.constexpr, N: tl.constexpr, GATED: tl.constexpr, PADDED: tl.constexpr, COLUMNS: tl.constexpr,
    SEGMENT: tl.constexpr, STAGES: tl.constexpr, PARTS: tl.constexpr, PREFETCH: tl.constexpr,
    SHARES: tl.constexpr, NORMED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """``out = W norm(x)`` for ``states`` rows of x; program ``(outputs, rows, part)``.

    With PARTS > 1, not GATED, each part multiplies K / PARTS columns, and out is float32 ``[PARTS, states, N]``:
    ``join_parts`` adds them up, and does what is done to their sum.

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
    PART: tl.constexpr = K // PARTS
    x += tl.program_id(2) * PART
    weight += tl.program_id(2) * PART
    out += tl.program_id(2) * states * N
    if PREFETCH:
        WIDTH: tl.constexpr = PART * weight.dtype.element_ty.primitive_bitwidth // 8
        prefetch_rows(weight, first, K, COLUMNS, WIDTH)
        if GATED:
            prefetch_rows(weight, N + first, K, COLUMNS, WIDTH)
    wait_for_inputs(PDL)
    rows = tl.program_id(1) * PADDED + tl.arange(0, PADDED)
    if squares is not None:
        shares = _load_squares(squares, rows, states, K, SHARES)
    sums = tl.zeros((PADDED, COLUMNS), tl.float32)
    up_sums = tl.zeros((PADDED, COLUMNS), tl.float32)
    for start in tl.range(0, PART, SEGMENT, num_stages=STAGES):
        values = _load_states(x, rows, states, start, K, PART, SEGMENT)
        tile = _load_weights(weight, first, start, N, K, PART, COLUMNS, SEGMENT)
        sums = dot(values, tile, sums)
        if GATED:
            up_tile = _load_weights(weight + N * K, first, start, N, K, PART, COLUMNS, SEGMENT)
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
        gains = load_gains(next_gain, first, N, COLUMNS)
        store_operand(result, gains, next_operand, next_squares, rows, first, states, N)


@triton.jit
def _store_normed(wide, gain, scale, rows, states, normed, K: tl.constexpr, NORMED: tl.constexpr):
    places = tl.program_id(0) * NORMED + tl.arange(0, NORMED)
    mask = (rows < states)[:, None] & (places < K)[None, :]
    pointers = rows[:, None] * K + places[None, :]
    gains = tl.load(gain + places, mask=places < K, other=0.0)[None, :].to(tl.float32)
    values = tl.load(wide + pointers, mask=mask, other=0.0) * gains * scale
    tl.store(normed + pointers, values.to(normed.dtype.element_ty), mask=mask)


@triton.jit
def join_parts(
    parts, bias, residual, out, next_gain, next_operand, next_squares, states,
    N: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add up a product's parts, float32 ``[PARTS, states, N]``, in their order; program ``(row, outputs)``.

    The other arguments are those of ``project_many``.
    """
    launch_dependents(PDL)
    row = tl.program_id(0)
    first = tl.program_id(1) * COLUMNS
    columns = first + tl.arange(0, COLUMNS)
    mask = columns < N
    gains = load_gains(next_gain, first, N, COLUMNS)
    wait_for_inputs(PDL)
    loaded = ()  # all on their way before the first is added
    for part in tl.static_range(PARTS):
        loaded = loaded + (tl.load(parts + (part * states + row) * N + columns, mask=mask, other=0.0),)
    result = tl.zeros((COLUMNS,), tl.float32)
    for part in tl.static_range(PARTS):
        result += loaded[part]
    if bias is not None:
        result += tl.load(bias + columns, mask=mask, other=0.0).to(tl.float32)
    if residual is not None:
        result += tl.load(residual + row * N + columns, mask=mask, other=0.0)
    tl.store(out + row * N + columns, result.to(out.dtype.element_ty), mask=mask)
    if next_operand is not None:
        rows = row + tl.arange(0, 1)
        store_operand(result[None, :], gains, next_operand, next_squares, rows, first, states, N)

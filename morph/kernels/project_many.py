"""The products of ``project.py`` for more states than two, on the tensor cores.

A program makes COLUMNS outputs of up to PADDED states. The first EARLY segments of its weights wait in registers, as
there; the rest follows through the compiler's pipeline. Products are of the model's dtype, sums are float32; float32
models multiply in float32 too.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

from .project import silu
from .wait import launch_dependents, wait_for_inputs

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def dot(left, right, sums):
    """``sums + left right``, in float32 where the operands are.

    Triton's interpreter takes bf16 operands for the integers that it keeps them in, so they are widened there.
    """
    if INTERPRETED:
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, sums, input_precision="ieee")


@triton.jit
def _load_tile(weight, columns, N, start, K: tl.constexpr, SEGMENT: tl.constexpr):
    """A segment of the weights of some outputs, ``[SEGMENT, COLUMNS]``."""
    places = start + tl.arange(0, SEGMENT)
    mask = (columns < N)[None, :]
    if K % SEGMENT != 0:
        mask = mask & (places < K)[:, None]
    return tl.load(weight + columns[None, :].to(tl.int64) * K + places[:, None], mask=mask, other=0.0)


@triton.jit
def _load_states(x, rows, row_mask, gain, squares, start, K: tl.constexpr, SEGMENT: tl.constexpr):
    """A segment of the states ``[PADDED, SEGMENT]``, times the norm's weight, and the sum of their squares so far."""
    places = start + tl.arange(0, SEGMENT)
    inside = places < K
    values = tl.load(
        x + rows[:, None] * K + places[None, :], mask=row_mask[:, None] & inside[None, :], other=0.0
    )
    if gain is not None:
        wide = values.to(tl.float32)
        squares += tl.sum(wide * wide, axis=1)
        values = (wide * tl.load(gain + places, mask=inside, other=0.0)[None, :].to(tl.float32)).to(
            values.dtype
        )
    return values, squares


@triton.jit
def project_many(
    x, gain, eps, weight, bias, residual, out, copy, normed, states,
    K: tl.constexpr, N: tl.constexpr, GATED: tl.constexpr, PADDED: tl.constexpr, COLUMNS: tl.constexpr,
    SEGMENT: tl.constexpr, EARLY: tl.constexpr, STAGES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """``out = W norm(x)`` for ``states`` rows of x; program ``(outputs, rows)``.

    Args (None for what does not take part):
        x: ``[states, K]`` in the weights' dtype.
        gain: RMSNorm's weight ``[K]``.
        weight: ``[N, K]``; when GATED ``[2 N, K]``, gates before ups, and ``out = silu(gate) up``.
        bias: ``[N]``.
        residual: float32 ``[states, N]``, added to the result.
        out: ``[states, N]``; copy: the same in another dtype.
        normed: ``[states, K]``, where the first program leaves the normed states.
    """
    launch_dependents(PDL)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    tiles = ()
    up_tiles = ()
    for index in tl.static_range(EARLY):
        tiles = tiles + (_load_tile(weight, columns, N, index * SEGMENT, K, SEGMENT),)
        if GATED:
            up_tiles = up_tiles + (_load_tile(weight + N * K, columns, N, index * SEGMENT, K, SEGMENT),)
    wait_for_inputs(PDL)
    rows = tl.program_id(1) * PADDED + tl.arange(0, PADDED)
    row_mask = rows < states
    sums = tl.zeros((PADDED, COLUMNS), tl.float32)
    up_sums = tl.zeros((PADDED, COLUMNS), tl.float32)
    squares = tl.zeros((PADDED,), tl.float32)
    for index in tl.static_range(EARLY):
        values, squares = _load_states(x, rows, row_mask, gain, squares, index * SEGMENT, K, SEGMENT)
        sums = dot(values, tiles[index], sums)
        if GATED:
            up_sums = dot(values, up_tiles[index], up_sums)
    for start in tl.range(EARLY * SEGMENT, K, SEGMENT, num_stages=STAGES):
        values, squares = _load_states(x, rows, row_mask, gain, squares, start, K, SEGMENT)
        tile = _load_tile(weight, columns, N, start, K, SEGMENT)
        sums = dot(values, tile, sums)
        if GATED:
            up_tile = _load_tile(weight + N * K, columns, N, start, K, SEGMENT)
            up_sums = dot(values, up_tile, up_sums)
    if gain is not None:
        scale = tl.rsqrt(squares / K + eps)[:, None]
        sums *= scale
        up_sums *= scale
        if normed is not None and tl.program_id(0) == 0:
            _store_normed(x, rows, row_mask, gain, scale, normed, K, SEGMENT)
    result = silu(sums) * up_sums if GATED else sums
    mask = row_mask[:, None] & (columns < N)[None, :]
    places = rows[:, None] * N + columns[None, :]
    if bias is not None:
        result += tl.load(bias + columns, mask=columns < N, other=0.0)[None, :].to(tl.float32)
    if residual is not None:
        result += tl.load(residual + places, mask=mask, other=0.0)
    tl.store(out + places, result.to(out.dtype.element_ty), mask=mask)
    if copy is not None:
        tl.store(copy + places, result.to(copy.dtype.element_ty), mask=mask)


@triton.jit
def _store_normed(x, rows, row_mask, gain, scale, normed, K: tl.constexpr, SEGMENT: tl.constexpr):
    for start in tl.range(0, K, SEGMENT):
        places = start + tl.arange(0, SEGMENT)
        mask = row_mask[:, None] & (places < K)[None, :]
        pointers = rows[:, None] * K + places[None, :]
        gains = tl.load(gain + places, mask=places < K, other=0.0)[None, :].to(tl.float32)
        values = tl.load(x + pointers, mask=mask, other=0.0).to(tl.float32) * gains * scale
        tl.store(normed + pointers, values.to(normed.dtype.element_ty), mask=mask)

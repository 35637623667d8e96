"""The register layout of heads, RMSNorm and RoPE for the attention kernels of one line and of batches.

Heads are ``[COPIES, WARPS, P, GROUP, D]`` with some dimensions of size 1: COPIES x WARPS x P cached positions, GROUP
query heads per key head, D columns. A warp reads COPIES positions with one instruction; each thread has P of them and
all queries. Scores are in powers of two, so that an exponential is one instruction (``LOG2_E``).
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def head_columns(WARPS: tl.constexpr, D: tl.constexpr, COPIES: tl.constexpr = 2):
    """Return a head's columns for every warp, COPIES times: ``[COPIES, WARPS, 1, 1, D]``."""
    copies = tl.arange(0, COPIES)[:, None] + tl.arange(0, WARPS)[None, :]
    return tl.arange(0, D)[None, None, None, None, :] + copies[:, :, None, None, None] * 0


@triton.jit
def positions_of(WARPS: tl.constexpr, P: tl.constexpr, COPIES: tl.constexpr = 2):
    """Return ``COPIES WARPS P`` positions from 0 on, ``[COPIES, WARPS, P, 1, 1]``."""
    warps = tl.arange(0, WARPS)[None, :, None, None, None] * P + tl.arange(0, P)[None, None, :, None, None]
    return warps * COPIES + tl.arange(0, COPIES)[:, None, None, None, None]


@triton.jit
def group_columns(columns, GROUP: tl.constexpr):
    """Return ``columns`` for each of GROUP heads, ``[COPIES, WARPS, 1, GROUP, D]``."""
    # Weights and angles are loaded with these too: the compiler gives loads of one shape one layout.
    return columns + tl.arange(0, GROUP)[None, None, None, :, None] * 0


@triton.jit
def query_heads(vectors, GROUP: tl.constexpr, D: tl.constexpr):
    """Return pointers to GROUP consecutive heads, ``[1, 1, 1, GROUP, 1]``."""
    return vectors + tl.arange(0, GROUP)[None, None, None, :, None] * D


@triton.jit
def once(columns, WARPS: tl.constexpr, D: tl.constexpr, COPIES: tl.constexpr = 2):
    """Return a mask for ``columns`` that is true for each column in one copy only."""
    copies = tl.arange(0, COPIES)[:, None] + tl.arange(0, WARPS)[None, :]
    return columns < tl.where(copies == 0, D, 0)[:, :, None, None, None]


@triton.jit
def load_rotation(gain, cos, sin, position, columns, scale, D: tl.constexpr):
    """Load RMSNorm's weight times RoPE's factors at a position: for a column itself, and for its partner."""
    # The first half of the sines is negated (``layers.Angles``), so RoPE adds the partner without a sign.
    across = (columns + D // 2) % D
    own = tl.load(gain + columns).to(tl.float32) * tl.load(cos + position * D + columns)
    other = tl.load(gain + across).to(tl.float32) * tl.load(sin + position * D + columns)
    return own * scale, other * scale


@triton.jit
def rotated_heads(vectors, rotation, columns, eps, D: tl.constexpr):
    """Return the heads at ``vectors`` after RMSNorm and RoPE, float32 ``[COPIES, WARPS, 1, heads, D]``."""
    values = tl.load(vectors + columns).to(tl.float32)
    across = tl.load(vectors + (columns + D // 2) % D).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=4, keep_dims=True) * (1.0 / D) + eps)
    return (values * rotation[0] + across * rotation[1]) * scale


@triton.jit
def highest(scores):
    """Return the largest score over all positions, dimensions kept: first within a thread, last across warps."""
    scores = tl.max(tl.max(scores, axis=2, keep_dims=True), axis=0, keep_dims=True)
    return tl.max(scores, axis=1, keep_dims=True)


@triton.jit
def sum_positions(values):
    """Return the sum over all positions, in the order of ``highest``."""
    values = tl.sum(tl.sum(values, axis=2, keep_dims=True), axis=0, keep_dims=True)
    return tl.sum(values, axis=1, keep_dims=True)

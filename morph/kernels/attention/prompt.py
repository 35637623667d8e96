"""Attention of a short prompt, which is all new: nothing is read from the cache, and every program has all its keys.

A prompt of 64 positions has 64 KB of keys per key head, so each program norms and turns all of them, and all loads are
in flight at once. That costs less than a kernel of its own before this one would.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..linear.gemm import dot
from ..pdl import launch_dependents, wait_for_inputs
from .split import rotated


@triton.jit
def attend_prompt(
    qkv, gains, eps, cos, sin, cache_keys, cache_values, head_stride, out,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Attend from positions 0 to LENGTH - 1 of one line; program ``(block of BLOCK positions, key head)``.

    Args:
        qkv: float32 ``[LENGTH, (HEADS + 2 KV_HEADS) D]``; LENGTH is a power of two, and 16 or more, as is BLOCK.
        gains: the norms' weights, ``[2, D]``: queries', keys'.
        cos, sin: float32 ``[>= LENGTH, D]``.
        cache_keys, cache_values: one layer's ``[1, KV_HEADS, >= LENGTH, D]``; ``head_stride`` is that of KV_HEADS.
        out: ``[LENGTH, HEADS, D]``.
    """
    launch_dependents(PDL)
    first, head = tl.program_id(0) * BLOCK, tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    QKV: tl.constexpr = (HEADS + 2 * KV_HEADS) * D
    slots, dims = tl.arange(0, LENGTH), tl.arange(0, D)[None, :]
    wait_for_inputs(PDL)
    # Rounded to the cache's dtype, as later positions will read them.
    dtype: tl.constexpr = cache_keys.dtype.element_ty
    vectors = qkv + slots * QKV + (HEADS + head) * D
    keys = rotated(vectors, slots < LENGTH, gains + D, eps, cos, sin, slots, D).to(dtype)
    values = tl.load(vectors[:, None] + KV_HEADS * D + dims).to(dtype)
    index = tl.arange(0, BLOCK * GROUP)
    position = first + index // GROUP
    heads = head * GROUP + index % GROUP
    queries = rotated(
        qkv + position * QKV + heads * D, position < LENGTH, gains, eps, cos, sin, position, D
    ) * (D**-0.5)
    own = ((slots >= first) & (slots < first + BLOCK))[:, None]
    pointers = head * head_stride + slots[:, None] * D + dims
    tl.store(cache_keys + pointers, keys, mask=own)
    tl.store(cache_values + pointers, values, mask=own)
    scores = dot(queries.to(dtype), tl.trans(keys), tl.zeros((BLOCK * GROUP, LENGTH), tl.float32))
    scores = tl.where(slots[None, :] <= position[:, None], scores, float("-inf"))
    weights = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    mean = dot(weights.to(dtype), values, tl.zeros((BLOCK * GROUP, D), tl.float32))
    mean /= tl.sum(weights, axis=1)[:, None]
    tl.store(out + (position * HEADS + heads)[:, None] * D + dims, mean.to(out.dtype.element_ty))

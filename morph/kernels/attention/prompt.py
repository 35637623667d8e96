"""Attention of a short prompt: all positions are new, so the cache is not read and norm and RoPE need no kernel."""
# Every program normalizes and rotates all keys that it sees (64 positions: 64 KB of keys and values per key head).
# That costs less than waiting for another kernel.

from __future__ import annotations

import triton
import triton.language as tl

from ..pdl import launch_dependents, wait_for_inputs
from .split import attend_block, rotated


@triton.jit
def attend_prompt(
    qkv, gains, eps, cos, sin, cache_keys, cache_values, head_stride, out,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr,
    KEYS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Attend from positions 0 to LENGTH - 1 of one line; program ``(block of BLOCK positions, key head)``.

    Args:
        qkv: ``[LENGTH, (HEADS + 2 KV_HEADS) D]``, float32 or the model's dtype; LENGTH is a multiple of BLOCK.
        gains: ``[2, D]``, queries', keys'; cos, sin: float32 ``[>= LENGTH, D]``.
        cache_keys, cache_values: ``[1, KV_HEADS, >= LENGTH, D]``; out: ``[LENGTH, HEADS, D]``.
        BLOCK, KEYS: powers of two, at least 16; KEYS keys are loaded at once.
    """
    launch_dependents(PDL)
    first, head = tl.program_id(0) * BLOCK, tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    QKV: tl.constexpr = (HEADS + 2 * KV_HEADS) * D
    dtype: tl.constexpr = cache_keys.dtype.element_ty
    dims = tl.arange(0, D)[None, :]
    index = tl.arange(0, BLOCK * GROUP)
    position = first + index // GROUP
    heads = head * GROUP + index % GROUP
    wait_for_inputs(PDL)
    queries = rotated(qkv + position * QKV + heads * D, position < LENGTH, gains, eps, cos, sin, position, D) * (
        D**-0.5
    )
    best = tl.full((BLOCK * GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK * GROUP,), tl.float32)
    mean = tl.zeros((BLOCK * GROUP, D), tl.float32)
    for start in tl.static_range(0, LENGTH, KEYS):
        if start < first + BLOCK:
            slots = start + tl.arange(0, KEYS)
            vectors = qkv + slots * QKV + (HEADS + head) * D
            there = slots < LENGTH
            # Rounded to the cache's dtype, as later positions will read them.
            keys = rotated(vectors, there, gains + D, eps, cos, sin, slots, D).to(dtype)
            values = tl.load(vectors[:, None] + KV_HEADS * D + dims, mask=there[:, None], other=0.0).to(dtype)
            own = ((slots >= first) & (slots < first + BLOCK))[:, None]
            pointers = head * head_stride + slots[:, None] * D + dims
            tl.store(cache_keys + pointers, keys, mask=own)
            tl.store(cache_values + pointers, values, mask=own)
            visible = slots[None, :] <= position[:, None]
            best, total, mean = attend_block(queries, keys, values, visible, best, total, mean, True)
    mean /= total[:, None]
    tl.store(out + (position * HEADS + heads)[:, None] * D + dims, mean.to(out.dtype.element_ty))

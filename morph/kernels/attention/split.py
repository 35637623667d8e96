"""Attention of one new position per line, with a context that is split over programs (flash-decoding).

A program has one line, one key head, the query heads that share it, and every SPLITS-th block of the context.
``combine_splits`` combines their means of the values by log-sum-exp.

``attend_prompt`` is for a short prompt: all positions are new, so the cache is not read and norm and RoPE need no
kernel. Every program normalizes and rotates all keys that it sees (64 positions: 64 KB of keys and values per key
head). That costs less than waiting for another kernel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..linear.gemm import dot
from ..pdl import launch_dependents, wait_for_inputs


@triton.jit
def rotated(vectors, mask, gain, eps, cos, sin, positions, D: tl.constexpr):
    """Apply RMSNorm, then RoPE, to ``[R]`` vectors of length D (pointers) at ``[R]`` positions: float32 ``[R, D]``."""
    # The first half of the sines is negated (``layers.Angles``). Each row loads the norm's weights again: sharing
    # them would cost barriers.
    dims = (tl.arange(0, D) + tl.zeros_like(positions)[:, None]).to(tl.int32)
    swapped = (dims + D // 2) % D
    mask = mask[:, None]
    own = tl.load(vectors[:, None] + dims, mask=mask, other=0.0).to(tl.float32)
    other = tl.load(vectors[:, None] + swapped, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(own * own, axis=1) / D + eps)
    own *= tl.load(gain + dims, mask=mask, other=0.0).to(tl.float32)
    other *= tl.load(gain + swapped, mask=mask, other=0.0).to(tl.float32)
    offsets = positions[:, None] * D + dims
    own *= tl.load(cos + offsets, mask=mask, other=0.0)
    other *= tl.load(sin + offsets, mask=mask, other=0.0)
    return (own + other) * scale[:, None]


@triton.jit
def insert_new(
    keys, values, new_key, gains, eps, cos, sin, start, slots, cache_keys, cache_values, KV_HEADS, D: tl.constexpr,
):  # fmt: skip
    """Insert the new position's key and value among those loaded from the cache, ``[BLOCK, D]``, and store them."""
    # They are rounded to the cache's dtype, as later positions will read them.
    new = slots == start
    vectors = new_key + slots * 0
    key = rotated(vectors, new, gains + D, eps, cos, sin, slots, D).to(keys.dtype)
    dims = tl.arange(0, D)[None, :]
    value = tl.load(vectors[:, None] + KV_HEADS * D + dims, mask=new[:, None], other=0.0).to(keys.dtype)
    pointers = slots[:, None] * D + dims
    tl.store(cache_keys + pointers, key, mask=new[:, None])
    tl.store(cache_values + pointers, value, mask=new[:, None])
    return tl.where(new[:, None], key, keys), tl.where(new[:, None], value, values)


@triton.jit
def attend_block(queries, keys, values, visible, best, total, mean, DOT: tl.constexpr):
    """Add a block of keys and values ``[BLOCK, D]`` to a running softmax of queries, float32 ``[Q, D]``."""
    # ``visible`` is [Q, BLOCK]; best score and total weight are [Q], the weighted sum ``mean`` [Q, D].
    if DOT:
        empty = tl.zeros((queries.shape[0], keys.shape[0]), tl.float32)
        scores = dot(queries.to(keys.dtype), tl.trans(keys), empty)
    else:
        scores = tl.sum(queries[:, None, :] * keys[None, :, :].to(tl.float32), axis=2)
    scores = tl.where(visible, scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, axis=1))
    shift = tl.where(higher == float("-inf"), 0.0, higher)  # no position is visible yet
    weights = tl.exp(scores - shift[:, None])
    old = tl.exp(best - shift)
    total = total * old + tl.sum(weights, axis=1)
    mean *= old[:, None]
    if DOT:
        mean = dot(weights.to(values.dtype), values, mean)
    else:
        mean += tl.sum(weights[:, :, None] * values[None, :, :].to(tl.float32), axis=1)
    return higher, total, mean


@triton.jit
def load_slots(cache, slots, end, D: tl.constexpr):
    """Load the keys or values at positions ``slots`` below ``end``, else zeros: ``[len(slots), D]``."""
    pointers = slots[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(cache + pointers, mask=(slots < end)[:, None], other=0.0)


@triton.jit(do_not_specialize=["window"])
def attend_split(
    qkv, gains, eps, cos, sin, cache_keys, cache_values, line_stride, head_stride, positions, window, means, log_sums,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK: tl.constexpr, DOT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Attend from one new position per line; program ``(line, key head, split)`` has every SPLITS-th block.

    Args:
        qkv: ``[B, (HEADS + 2 KV_HEADS) D]``, float32 or a linear layer's product.
        gains: the norms' weights, ``[2, D]``: queries', keys'; cos, sin: float32 ``[positions, D]``.
        cache_keys, cache_values: one layer's ``[B, KV_HEADS, >= window, D]``, written before this graph began.
        positions: int64 ``[B]``, each line's new position, at most ``window - 1``.
        means: float32 ``[SPLITS, B, HEADS, D]``; log_sums: float32 ``[SPLITS, B, HEADS]``.
        QUERIES: the query heads per key head, padded with zeros for the tensor cores (DOT).
    """
    launch_dependents(PDL)
    line, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    QKV: tl.constexpr = (HEADS + 2 * KV_HEADS) * D
    offset = line.to(tl.int64) * line_stride + head * head_stride
    cache_keys += offset
    cache_values += offset
    slots = split * BLOCK + tl.arange(0, BLOCK)
    start = tl.minimum(tl.load(positions + line), window - 1).to(tl.int32)
    # Before the wait: old positions.
    keys, values = load_slots(cache_keys, slots, start, D), load_slots(cache_values, slots, start, D)
    wait_for_inputs(PDL)
    qkv += line * QKV
    index = tl.arange(0, QUERIES)
    real = index < GROUP
    vectors = qkv + (head * GROUP + index) * D
    queries = rotated(vectors, real, gains, eps, cos, sin, start + index * 0, D) * (D**-0.5)
    best = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mean = tl.zeros((QUERIES, D), tl.float32)
    blocks = start // BLOCK + 1
    block = split
    while block < blocks:
        slots = block * BLOCK + tl.arange(0, BLOCK)
        if block != split:
            keys, values = load_slots(cache_keys, slots, start, D), load_slots(cache_values, slots, start, D)
        if block * BLOCK + BLOCK > start:
            keys, values = insert_new(
                keys, values, qkv + (HEADS + head) * D, gains, eps, cos, sin, start, slots, cache_keys, cache_values,
                KV_HEADS, D,
            )  # fmt: skip
        visible = (slots <= start)[None, :]
        best, total, mean = attend_block(queries, keys, values, visible, best, total, mean, DOT)
        block += SPLITS
    mean = mean / tl.where(total == 0, 1.0, total)[:, None]
    rows = (split * tl.num_programs(0) + line) * HEADS + head * GROUP + index
    tl.store(means + rows[:, None] * D + tl.arange(0, D)[None, :], mean, mask=real[:, None])
    tl.store(log_sums + rows, best + tl.log(total), mask=real)


@triton.jit
def combine_splits(
    means, log_sums, out, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Combine the splits of ``attend_split``: ``out`` is ``[rows, HEADS, D]``; program ``(row, key head)``."""
    launch_dependents(PDL)
    wait_for_inputs(PDL)
    row = tl.program_id(0)
    heads = tl.program_id(1) * (HEADS // KV_HEADS) + tl.arange(0, HEADS // KV_HEADS)
    offsets = (tl.arange(0, SPLITS)[:, None] * tl.num_programs(0) + row) * HEADS + heads[None, :]
    sums = tl.load(log_sums + offsets)
    weights = tl.exp(sums - tl.max(sums, axis=0)[None, :])
    weights /= tl.sum(weights, axis=0)[None, :]
    values = tl.load(means + offsets[:, :, None] * D + tl.arange(0, D)[None, None, :])
    mean = tl.sum(weights[:, :, None] * values, axis=0)
    pointers = out + (row * HEADS + heads)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(pointers, mean.to(out.dtype.element_ty))


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

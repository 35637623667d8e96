"""Attention of new positions over the static cache: norms of queries and keys, RoPE, the cache's write, softmax.

A program takes one line, one key head and the query heads that share it. ``attend`` splits the context over programs
and leaves each part's mean of the values with its log-sum-exp; ``combine`` joins them. One line alone has kernels of
its own: ``attention_line.py``.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..linear.gemm import dot
from ..pdl import launch_dependents, wait_for_inputs


@triton.jit
def rotated(vectors, mask, gain, eps, cos, sin, positions, D: tl.constexpr):
    """RMSNorm, then RoPE, of ``[R]`` vectors of length D (pointers) at ``[R]`` positions: float32 ``[R, D]``.

    Zeros where ``mask`` ``[R]`` is false. The sines' first half is negated (``layers.Angles``), so the rotated half
    is the other half as it stands. The weights are loaded for every row anew: sharing them would cost barriers.
    """
    dims = (tl.arange(0, D) + tl.zeros_like(positions)[:, None]).to(tl.int32)
    swapped = (dims + D // 2) % D
    mask = mask[:, None]
    own = tl.load(vectors[:, None] + dims, mask=mask, other=0.0)
    other = tl.load(vectors[:, None] + swapped, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(own * own, axis=1) / D + eps)
    own *= tl.load(gain + dims, mask=mask, other=0.0).to(tl.float32)
    other *= tl.load(gain + swapped, mask=mask, other=0.0).to(tl.float32)
    places = positions[:, None] * D + dims
    own *= tl.load(cos + places, mask=mask, other=0.0)
    other *= tl.load(sin + places, mask=mask, other=0.0)
    return (own + other) * scale[:, None]


@triton.jit
def new_queries(
    qkv, row, head, gains, eps, cos, sin, start, QKV, QUERIES: tl.constexpr, GROUP, T, D: tl.constexpr
):
    """The queries of T new positions and GROUP heads: float32 ``[QUERIES, D]``, scaled for the softmax.

    ``QUERIES`` is T GROUP or, for tensor cores, more; the surplus is zeros.
    """
    index = tl.arange(0, QUERIES)
    step = index // GROUP
    vectors = qkv + (row + step) * QKV + (head * GROUP + index % GROUP) * D
    return rotated(vectors, step < T, gains, eps, cos, sin, start + step, D) * (D**-0.5)


@triton.jit
def put_new(
    keys, values, qkv, row, head, gains, eps, cos, sin, start, places, cache_keys, cache_values, writes,
    QKV, HEADS, KV_HEADS, T, D: tl.constexpr,
):  # fmt: skip
    """Put the T new positions' keys and values among those read from the cache, ``[BLOCK, D]``; write them there too.

    In the cache's dtype, as later positions will read them. ``writes`` says whether this program is to write.
    """
    new = (places >= start) & (places < start + T)
    vectors = qkv + (row + places - start) * QKV + (HEADS + head) * D
    key = rotated(vectors, new, gains + D, eps, cos, sin, places, D).to(keys.dtype)
    dims = tl.arange(0, D)[None, :]
    value = tl.load(vectors[:, None] + KV_HEADS * D + dims, mask=new[:, None], other=0.0).to(keys.dtype)
    pointers, written = places[:, None] * D + dims, (new & writes)[:, None]
    tl.store(cache_keys + pointers, key, mask=written)
    tl.store(cache_values + pointers, value, mask=written)
    return tl.where(new[:, None], key, keys), tl.where(new[:, None], value, values)


@triton.jit
def attend_block(queries, keys, values, visible, best, total, mean, DOT: tl.constexpr):
    """Take a block of positions into a running softmax.

    Args:
        queries: float32 ``[Q, D]``.
        keys, values: ``[BLOCK, D]``.
        visible: bool ``[Q, BLOCK]``.
        best, total: float32 ``[Q]``, largest score and sum of weights so far; mean: ``[Q, D]``, their values.
    """
    if DOT:
        empty = tl.zeros((queries.shape[0], keys.shape[0]), tl.float32)
        scores = dot(queries.to(keys.dtype), tl.trans(keys), empty)
    else:
        scores = tl.sum(queries[:, None, :] * keys[None, :, :].to(tl.float32), axis=2)
    scores = tl.where(visible, scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, axis=1))
    shift = tl.where(higher == float("-inf"), 0.0, higher)  # nothing visible so far
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
def load_block(cache_keys, cache_values, places, end, D: tl.constexpr):
    """Keys and values at ``places`` before ``end``, ``[BLOCK, D]``; zeros behind it."""
    pointers = places[:, None] * D + tl.arange(0, D)[None, :]
    mask = (places < end)[:, None]
    return tl.load(cache_keys + pointers, mask=mask, other=0.0), tl.load(
        cache_values + pointers, mask=mask, other=0.0
    )


@triton.jit(do_not_specialize=["start", "window"])
def attend(
    qkv, gains, eps, cos, sin, cache_keys, cache_values, line_stride, head_stride, positions, start, window,
    out, log_sums,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, T: tl.constexpr, QUERIES: tl.constexpr,
    SPLITS: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr, DOT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Attend from T new positions a line; program ``(line, key head, split)`` takes every SPLITS-th block.

    Args:
        qkv: float32 ``[B T, (HEADS + 2 KV_HEADS) D]``.
        gains: the norms' weights, ``[2, D]``: queries', keys'.
        cos, sin: float32 ``[positions, D]``.
        cache_keys, cache_values: one layer's ``[B, KV_HEADS, >= window, D]`` with the strides given.
        positions: int64 ``[B]`` where each line's new position goes, never beyond ``window - 1``; or None and
            ``start`` for all lines.
        out: ``[B T, HEADS, D]``, or with SPLITS > 1 float32 ``[SPLITS, B T, HEADS, D]``.
        log_sums: float32 ``[SPLITS, B T, HEADS]``, used with SPLITS > 1.
    EARLY: the old positions were written before this graph began, so they can be read before the wait.
    """
    launch_dependents(PDL)
    line, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    QKV: tl.constexpr = (HEADS + 2 * KV_HEADS) * D
    offset = line.to(tl.int64) * line_stride + head * head_stride
    cache_keys += offset
    cache_values += offset
    places = split * BLOCK + tl.arange(0, BLOCK)
    if EARLY:
        start = _position(positions, line, start, window)
        keys, values = load_block(cache_keys, cache_values, places, start, D)
    wait_for_inputs(PDL)
    if not EARLY:
        start = _position(positions, line, start, window)
        keys, values = load_block(cache_keys, cache_values, places, start, D)
    row = line * T
    queries = new_queries(qkv, row, head, gains, eps, cos, sin, start, QKV, QUERIES, GROUP, T, D)
    index = tl.arange(0, QUERIES)
    seen = start + index // GROUP
    best = tl.full((QUERIES,), float("-inf"), tl.float32)
    total = tl.zeros((QUERIES,), tl.float32)
    mean = tl.zeros((QUERIES, D), tl.float32)
    blocks = (start + T + BLOCK - 1) // BLOCK
    newest = (start + T - 1) // BLOCK
    block = split
    while block < blocks:
        places = block * BLOCK + tl.arange(0, BLOCK)
        if block != split:
            keys, values = load_block(cache_keys, cache_values, places, start, D)
        if block * BLOCK + BLOCK > start:
            keys, values = put_new(
                keys, values, qkv, row, head, gains, eps, cos, sin, start, places, cache_keys, cache_values,
                block == newest, QKV, HEADS, KV_HEADS, T, D,
            )  # fmt: skip
        visible = places[None, :] <= seen[:, None]
        best, total, mean = attend_block(queries, keys, values, visible, best, total, mean, DOT)
        block += SPLITS
    mean = mean / tl.where(total == 0, 1.0, total)[:, None]
    rows = (split * tl.num_programs(0) * T + row + index // GROUP) * HEADS + head * GROUP + index % GROUP
    mask = index < T * GROUP
    pointers = out + rows[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(pointers, mean.to(out.dtype.element_ty), mask=mask[:, None])
    if SPLITS > 1:
        tl.store(log_sums + rows, best + tl.log(total), mask=mask)


@triton.jit
def _position(positions, line, start, window):
    if positions is not None:
        start = tl.minimum(tl.load(positions + line), window - 1).to(tl.int32)
    return start


@triton.jit
def joined_parts(parts, log_sums, row, heads, ROWS, HEADS, D: tl.constexpr, SPLITS: tl.constexpr):
    """The parts of one row's attention, joined: float32 ``[len(heads), D]``."""
    splits = tl.arange(0, SPLITS)
    places = (splits[:, None] * ROWS + row) * HEADS + heads[None, :]
    sums = tl.load(log_sums + places)
    weights = tl.exp(sums - tl.max(sums, axis=0)[None, :])
    weights /= tl.sum(weights, axis=0)[None, :]
    means = tl.load(parts + places[:, :, None] * D + tl.arange(0, D)[None, None, :])
    return tl.sum(weights[:, :, None] * means, axis=0)


@triton.jit
def combine(
    parts, log_sums, out, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Join what ``attend`` left in SPLITS parts: ``out`` is ``[rows, HEADS, D]``; program ``(row, key head)``."""
    launch_dependents(PDL)
    wait_for_inputs(PDL)
    row = tl.program_id(0)
    heads = tl.program_id(1) * (HEADS // KV_HEADS) + tl.arange(0, HEADS // KV_HEADS)
    mean = joined_parts(parts, log_sums, row, heads, tl.num_programs(0), HEADS, D, SPLITS)
    pointers = out + (row * HEADS + heads)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(pointers, mean.to(out.dtype.element_ty))

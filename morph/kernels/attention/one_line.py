"""Attention of one line and its output projection: most kernels of a single line's frame.

A chain of short kernels is as fast as the work that each does after its wait, so old keys and values, norm weights
and angles are loaded before it, and new keys and values are inserted in registers. Two queries are multiplied on the
CUDA cores: tensor cores would pad them to sixteen.

For a frame's short context, every program of the output projection recomputes its attention (``attend_o_proj``),
which is cheaper than another launch. A long context is split (``attend_line``), and ``combine_o_proj`` combines the
splits. Both leave split-K partials of the projection, some heads each, for the next reader of the residual stream
(``gemv.load_row``). The register layout is that of ``heads.py``, with two copies.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..linear.gemv import WORD, add_products, load_scales, load_tiles, order_columns, share
from ..pdl import launch_dependents, wait_for_inputs
from .heads import (
    LOG2_E,
    group_columns,
    head_columns,
    highest,
    load_rotation,
    once,
    positions_of,
    query_heads,
    rotated_heads,
    sum_positions,
)


@triton.jit(do_not_specialize=["window"])
def attend_line(
    qkv, gains, eps, cos, sin, cache_keys, cache_values, head_stride, positions, window, means, log_sums,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr, WARPS: tl.constexpr,
    POSITIONS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One line's attention from one new position; program ``(key head, split)`` has WARPS x POSITIONS positions.

    Args:
        qkv: float32 ``[(HEADS + 2 KV_HEADS) D]``; gains: the norms' weights ``[2, D]`` (queries', keys').
        cos, sin: float32 ``[positions, D]``.
        cache_keys, cache_values: ``[KV_HEADS, >= window, D]``, written before this graph began.
        positions: int64 ``[1]``, the new position, at most ``window - 1``.
        means: float32 ``[SPLITS, HEADS, D]``, weighted means of the values.
        log_sums: float32 ``[SPLITS, HEADS]``, log-sum-exps in powers of two.
    """
    launch_dependents(PDL)
    head, split = tl.program_id(0), tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    start = tl.minimum(tl.load(positions), window - 1).to(tl.int32)
    cache_keys += head * head_stride
    cache_values += head * head_stride
    columns = head_columns(WARPS, D)
    first = split * WARPS * POSITIONS
    index = first + positions_of(WARPS, POSITIONS // 2)
    # Before the wait: the old keys and values, which no kernel of this frame's talker step writes.
    keys = tl.load(cache_keys + index * D + columns, mask=index < start, other=0.0)
    values = tl.load(cache_values + index * D + columns, mask=index < start, other=0.0)
    grouped = group_columns(columns, GROUP)
    query_rotation = load_rotation(gains, cos, sin, start, grouped, LOG2_E * D**-0.5, D)
    key_rotation = load_rotation(gains + D, cos, sin, start, columns, 1.0, D)
    wait_for_inputs(PDL)  # for qkv
    key = rotated_heads(qkv + (HEADS + head) * D, key_rotation, columns, eps, D).to(keys.dtype)
    value = tl.load(qkv + (HEADS + KV_HEADS + head) * D + columns).to(values.dtype)
    queries = rotated_heads(query_heads(qkv + head * GROUP * D, GROUP, D), query_rotation, grouped, eps, D)
    # The split that owns the new position writes it to the cache.
    mask = once(columns, WARPS, D) & (start >= first) & (start < first + WARPS * POSITIONS)
    tl.store(cache_keys + start * D + columns, key, mask=mask)
    tl.store(cache_values + start * D + columns, value, mask=mask)
    keys = tl.where(index == start, key, keys).to(tl.float32)
    values = tl.where(index == start, value, values).to(tl.float32)
    scores = tl.sum(queries * keys, axis=4, keep_dims=True)
    scores = tl.where(index <= start, scores, float("-inf"))
    best = highest(scores)
    # The split may be beyond the new position.
    weights = tl.exp2(scores - tl.where(best == float("-inf"), 0.0, best))
    total = sum_positions(weights)
    mean = sum_positions(weights * values) * (1.0 / tl.where(total == 0, 1.0, total))
    row = split * HEADS + head * GROUP
    column = tl.arange(0, GROUP * D)
    tl.store(means + row * D + column, tl.reshape(mean, (GROUP * D,)))
    tl.store(log_sums + row + tl.arange(0, GROUP), tl.reshape(best + tl.log2(total), (GROUP,)))


@triton.jit
def combined(means, log_sums, heads, columns, HEADS: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr):
    """Combine the splits of ``attend_line`` at some ``columns`` of ``[HEADS D]``, which are of ``heads``: float32."""
    # One thread combines all splits of a column, so no thread waits for another.
    best = tl.full(columns.shape, float("-inf"), tl.float32)
    sums = ()
    parts = ()
    for split in tl.static_range(SPLITS):
        sums = sums + (tl.load(log_sums + split * HEADS + heads),)
        parts = parts + (tl.load(means + split * HEADS * D + columns),)
    for split in tl.static_range(SPLITS):
        best = tl.maximum(best, sums[split])
    mean = tl.zeros(columns.shape, tl.float32)
    total = tl.zeros(columns.shape, tl.float32)
    for split in tl.static_range(SPLITS):
        weight = tl.exp2(sums[split] - best)
        total += weight
        mean += weight * parts[split]
    return mean / total


@triton.jit
def output_rows(WARPS: tl.constexpr, ROWS: tl.constexpr):
    first = tl.program_id(1) * WARPS * ROWS
    return first + tl.arange(0, WARPS)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]


@triton.jit
def store_product(
    mean, tiles, scales, rows, row_mask, out, WIDTH: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr,
    PACK: tl.constexpr,
):  # fmt: skip
    """Multiply one position's ``[WIDTH]`` with some heads' columns of the projection, and store the partial."""
    values = share(mean, order_columns(tl.arange(0, WIDTH), CHUNK, PACK), CHUNKS, CHUNK)
    result = tl.sum(add_products(tiles[0], values), axis=2) * scales
    tl.store(out + rows, result.to(out.dtype.element_ty), mask=row_mask)


@triton.jit
def combine_o_proj(
    means, log_sums, weight, scales, out,
    HEADS: tl.constexpr, SPLIT_K: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr,
    N: tl.constexpr, WARPS: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Combine and project the result of ``attend_line``; program ``(split, rows)`` has HEADS / SPLIT_K heads.

    ``weight`` is ``[N, HEADS D]`` (INT8 as words ``[N, HEADS D / 4]``), ``out`` ``[SPLIT_K, 1, N]``.
    """
    launch_dependents(PDL)
    WIDTH: tl.constexpr = HEADS // SPLIT_K * D
    PACK: tl.constexpr = WORD if weight.dtype.element_ty == tl.int32 else 1
    split = tl.program_id(0)
    rows = output_rows(WARPS, ROWS)
    row_mask = rows < N
    # Before the wait: the program's weights.
    tiles = load_tiles(weight + split * (WIDTH // PACK), rows, row_mask, HEADS * D, WIDTH, WARPS, CHUNKS, CHUNK)
    row_scales = load_scales(scales, rows, row_mask)
    columns = split * WIDTH + tl.arange(0, WIDTH)
    wait_for_inputs(PDL)  # for attend_line
    mean = combined(means, log_sums, columns // D, columns, HEADS, D, SPLITS)
    store_product(mean, tiles, row_scales, rows, row_mask, out + split * N, WIDTH, CHUNKS, CHUNK, PACK)


@triton.jit
def _add_pairs(one, other, next_one, next_other):
    return one + next_one, other + next_other


@triton.jit
def spread(weights, GROUP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """Give each column's thread the weights of BLOCK positions: ``[2, WARPS, P, GROUP, 1]`` to ``[GROUP D, BLOCK]``."""
    # A gather, for the reason in ``gemv.share``.
    index = tl.arange(0, GROUP * D * BLOCK)
    position, group = index % BLOCK, index // (D * BLOCK)
    source = (position % 2 * (BLOCK // 2) + position // 2) * GROUP + group
    return tl.reshape(tl.gather(tl.reshape(weights, (GROUP * BLOCK,)), source, axis=0), (GROUP * D, BLOCK))


@triton.jit(do_not_specialize=["start"])
def attend_o_proj(
    qkv, gains, eps, cos, sin, cache_keys, cache_values, head_stride, start, weight, scales, out,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, T: tl.constexpr, BLOCK: tl.constexpr,
    N: tl.constexpr, WARPS: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One line's attention over at most BLOCK positions and its output projection; program ``(key head, rows)``.

    Warps compute scores, some positions each; threads the means of values, one column each. Arguments as of
    ``attend_line``, for T new positions ``start ..``; old positions were written before the last sampler ran
    (``pdl.py``). ``weight`` is ``[N, HEADS D]``, INT8 as words ``[N, HEADS D / 4]``; ``out`` ``[KV_HEADS, T, N]``,
    split-K partials.
    """
    launch_dependents(PDL)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    QKV: tl.constexpr = (HEADS + 2 * KV_HEADS) * D
    PACK: tl.constexpr = WORD if weight.dtype.element_ty == tl.int32 else 1
    head = tl.program_id(0)
    rows = output_rows(WARPS, ROWS)
    row_mask = rows < N
    # Before the wait: the program's weights, the old keys and values, and the factors of RMSNorm and RoPE.
    tiles = load_tiles(weight + head * (GROUP * D // PACK), rows, row_mask, HEADS * D, GROUP * D, WARPS, CHUNKS, CHUNK)
    row_scales = load_scales(scales, rows, row_mask)
    cache_keys += head * head_stride
    cache_values += head * head_stride
    columns = head_columns(WARPS, D)
    index = positions_of(WARPS, BLOCK // (2 * WARPS))  # positions of the keys
    flat = tl.arange(0, BLOCK)[None, :]  # positions of the values
    # One column per thread: max_contiguous keeps the compiler from reading several at once.
    column = tl.max_contiguous(tl.arange(0, GROUP * D) % D, 1)
    keys = tl.load(cache_keys + index * D + columns, mask=index < start, other=0.0)
    values = tl.load(cache_values + flat * D + column[:, None], mask=flat < start, other=0.0)
    grouped = group_columns(columns, GROUP)
    rotations = ()
    for step in tl.static_range(T):
        rotations = rotations + (load_rotation(gains, cos, sin, start + step, grouped, LOG2_E * D**-0.5, D),)
        rotations = rotations + (load_rotation(gains + D, cos, sin, start + step, columns, 1.0, D),)
    wait_for_inputs(PDL)  # for qkv
    queries = ()
    writes = tl.program_id(1) == 0  # one program per key head writes the cache
    for step in tl.static_range(T):
        vectors = query_heads(qkv + step * QKV + head * GROUP * D, GROUP, D)
        queries = queries + (rotated_heads(vectors, rotations[2 * step], grouped, eps, D),)
        vector = qkv + step * QKV + (HEADS + head) * D
        value = tl.load(vector + KV_HEADS * D + column).to(values.dtype)
        key = rotated_heads(vector, rotations[2 * step + 1], columns, eps, D).to(keys.dtype)
        offset = (start + step) * D
        tl.store(cache_keys + offset + columns, key, mask=once(columns, WARPS, D) & writes)
        tl.store(cache_values + offset + column, value, mask=(tl.arange(0, GROUP * D) < D) & writes)
        keys = tl.where(index == start + step, key, keys)
        values = tl.where(flat == start + step, value[:, None], values)
    for step in tl.static_range(T):
        scores = tl.sum(queries[step] * keys.to(tl.float32), axis=4, keep_dims=True)
        scores = tl.where(index <= start + step, scores, float("-inf"))
        weights = tl.exp2(scores - highest(scores))
        weights = spread(weights, GROUP, D, BLOCK)
        mean, total = tl.reduce((weights * values.to(tl.float32), weights), 1, _add_pairs)
        partials = out + (head * T + step) * N
        store_product(mean / total, tiles, row_scales, rows, row_mask, partials, GROUP * D, CHUNKS, CHUNK, PACK)

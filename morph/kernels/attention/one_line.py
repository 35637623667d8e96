"""Attention of one line and its output projection: what a frame of a single line spends most kernels on.

A chain of short kernels is as fast as what each does behind its wait, so little is left there: old keys and values,
the norms' weights and the angles are loaded before it; new ones are put among them in registers; two queries are
multiplied plainly, as tensor cores would pad them to sixteen. A frame's context (``attend_project``) is computed
anew in every program of the projection, which is less than a launch. A long one is split over programs
(``attend_line``), and the projection joins the parts (``join_project``). Both leave the product in parts, some heads
each; who reads it adds them up (see ``project.load_state``).

Scores and their sums are in powers of two, so that an exponential is one instruction.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..linear.gemv import WORD, add_products, load_scales, load_tiles, order_columns, share
from ..pdl import launch_dependents, wait_for_inputs

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def head_columns(WARPS: tl.constexpr, D: tl.constexpr, COPIES: tl.constexpr = 2):
    """A head's columns as ``[COPIES, WARPS, 1, 1, D]``: every warp has all of them, here twice.

    Positions are ``[COPIES, WARPS, H, 1, 1]`` and query heads ``[1, 1, 1, GROUP, 1]`` beside them: half a warp reads
    a position of 128 columns at once, and H of them, and all queries, lie in each thread.
    """
    copies = tl.arange(0, COPIES)[:, None] + tl.arange(0, WARPS)[None, :]
    return tl.arange(0, D)[None, None, None, None, :] + copies[:, :, None, None, None] * 0


@triton.jit
def positions_of(WARPS: tl.constexpr, H: tl.constexpr, COPIES: tl.constexpr = 2):
    """``COPIES WARPS H`` positions from 0 on, as of ``head_columns``."""
    warps = tl.arange(0, WARPS)[None, :, None, None, None] * H + tl.arange(0, H)[None, None, :, None, None]
    return warps * COPIES + tl.arange(0, COPIES)[:, None, None, None, None]


@triton.jit
def load_turn(gain, cos, sin, position, columns, scale, D: tl.constexpr):
    """What RMSNorm's weight, RoPE at a position and a scale multiply a head with: its own column, the other half's.

    The sines' first half is negated (``layers.Angles``), so the rotated half is the other half as it stands.
    """
    across = (columns + D // 2) % D
    own = tl.load(gain + columns).to(tl.float32) * tl.load(cos + position * D + columns)
    other = tl.load(gain + across).to(tl.float32) * tl.load(sin + position * D + columns)
    return own * scale, other * scale


@triton.jit
def turned(vectors, turn, columns, eps, D: tl.constexpr):
    """Heads after RMSNorm and RoPE, float32 ``[2, WARPS, 1, heads, D]``; ``turn`` is ``load_turn``'s.

    ``vectors`` points to the heads, ``[.., heads, 1]`` or one.
    """
    values = tl.load(vectors + columns)
    across = tl.load(vectors + (columns + D // 2) % D)
    scale = tl.rsqrt(tl.sum(values * values, axis=4, keep_dims=True) * (1.0 / D) + eps)
    return (values * turn[0] + across * turn[1]) * scale


@triton.jit
def group_columns(columns, GROUP: tl.constexpr):
    """``columns`` for each of GROUP heads, ``[2, WARPS, 1, GROUP, D]``.

    Weights and angles are loaded with them too: by loads of one shape the compiler finds one layout.
    """
    return columns + tl.arange(0, GROUP)[None, None, None, :, None] * 0


@triton.jit
def query_heads(vectors, GROUP: tl.constexpr, D: tl.constexpr):
    """Pointers to GROUP heads side by side, ``[1, 1, 1, GROUP, 1]``."""
    return vectors + tl.arange(0, GROUP)[None, None, None, :, None] * D


@triton.jit
def once(columns, WARPS: tl.constexpr, D: tl.constexpr, COPIES: tl.constexpr = 2):
    """A mask for ``columns`` that has each of them in one copy only."""
    copies = tl.arange(0, COPIES)[:, None] + tl.arange(0, WARPS)[None, :]
    return columns < tl.where(copies == 0, D, 0)[:, :, None, None, None]


@triton.jit(do_not_specialize=["window"])
def attend_line(
    qkv, gains, eps, cos, sin, cache_keys, cache_values, head_stride, positions, window, means, log_sums,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr, WARPS: tl.constexpr,
    ROWS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One line's attention from one new position; program ``(key head, split)`` takes WARPS x ROWS positions.

    Args:
        qkv: float32 ``[(HEADS + 2 KV_HEADS) D]``.
        gains: the norms' weights, ``[2, D]``: queries', keys'.
        cos, sin: float32 ``[positions, D]``.
        cache_keys, cache_values: one layer's ``[KV_HEADS, >= window, D]``, written before this graph began.
        positions: int64 ``[1]``, where the new position goes, never beyond ``window - 1``.
        means: float32 ``[SPLITS, HEADS, D]``, the values' means; log_sums: ``[SPLITS, HEADS]``, in powers of two.
    """
    launch_dependents(PDL)
    head, split = tl.program_id(0), tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    start = tl.minimum(tl.load(positions), window - 1).to(tl.int32)
    cache_keys += head * head_stride
    cache_values += head * head_stride
    columns = head_columns(WARPS, D)
    first = split * WARPS * ROWS
    places = first + positions_of(WARPS, ROWS // 2)
    keys = tl.load(cache_keys + places * D + columns, mask=places < start, other=0.0)
    values = tl.load(cache_values + places * D + columns, mask=places < start, other=0.0)
    grouped = group_columns(columns, GROUP)
    query_turn = load_turn(gains, cos, sin, start, grouped, LOG2_E * D**-0.5, D)
    key_turn = load_turn(gains + D, cos, sin, start, columns, 1.0, D)
    wait_for_inputs(PDL)
    key = turned(qkv + (HEADS + head) * D, key_turn, columns, eps, D).to(keys.dtype)
    value = tl.load(qkv + (HEADS + KV_HEADS + head) * D + columns).to(values.dtype)
    queries = turned(query_heads(qkv + head * GROUP * D, GROUP, D), query_turn, grouped, eps, D)
    mask = once(columns, WARPS, D) & (start >= first) & (start < first + WARPS * ROWS)
    tl.store(cache_keys + start * D + columns, key, mask=mask)
    tl.store(cache_values + start * D + columns, value, mask=mask)
    keys = tl.where(places == start, key, keys).to(tl.float32)
    values = tl.where(places == start, value, values).to(tl.float32)
    scores = tl.sum(queries * keys, axis=4, keep_dims=True)
    scores = tl.where(places <= start, scores, float("-inf"))
    best = highest(scores)
    weights = tl.exp2(scores - tl.where(best == float("-inf"), 0.0, best))  # nothing may be visible
    total = sum_positions(weights)
    mean = sum_positions(weights * values) * (1.0 / tl.where(total == 0, 1.0, total))
    row = split * HEADS + head * GROUP
    column = tl.arange(0, GROUP * D)
    tl.store(means + row * D + column, tl.reshape(mean, (GROUP * D,)))
    tl.store(log_sums + row + tl.arange(0, GROUP), tl.reshape(best + tl.log2(total), (GROUP,)))


@triton.jit
def highest(scores):
    """The largest score over all positions, first within a thread, last between warps; dimensions stay."""
    scores = tl.max(tl.max(scores, axis=2, keep_dims=True), axis=0, keep_dims=True)
    return tl.max(scores, axis=1, keep_dims=True)


@triton.jit
def sum_positions(values):
    """The sum over all positions, as of ``highest``."""
    values = tl.sum(tl.sum(values, axis=2, keep_dims=True), axis=0, keep_dims=True)
    return tl.sum(values, axis=1, keep_dims=True)


@triton.jit
def joined(means, log_sums, heads, columns, HEADS: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr):
    """The parts of ``attend_line`` joined at some ``columns`` of ``[HEADS D]``, which lie in ``heads``: float32.

    All of a column's parts are one thread's, so that no thread waits for another.
    """
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
def product_rows(WARPS: tl.constexpr, ROWS: tl.constexpr):
    """A program's outputs ``[WARPS, ROWS]``, the programs side by side on the grid's second axis."""
    first = tl.program_id(1) * WARPS * ROWS
    return first + tl.arange(0, WARPS)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]


@triton.jit
def store_product(
    mean, tiles, scales, rows, row_mask, out, WIDTH: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr,
    PACK: tl.constexpr,
):  # fmt: skip
    """Multiply one position's ``[WIDTH]`` with some heads' columns of the output projection."""
    values = share(mean, order_columns(tl.arange(0, WIDTH), CHUNK, PACK), CHUNKS, CHUNK)
    result = tl.sum(add_products(tiles[0], values), axis=2) * scales
    tl.store(out + rows, result.to(out.dtype.element_ty), mask=row_mask)


@triton.jit
def join_project(
    means, log_sums, weight, scales, out,
    HEADS: tl.constexpr, PARTS: tl.constexpr, D: tl.constexpr, SPLITS: tl.constexpr,
    N: tl.constexpr, WARPS: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr,
    EVICT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Join what ``attend_line`` left and project it, some heads a program: ``(part, rows)``.

    ``weight`` is ``[N, HEADS D]`` (INT8 as words ``[N, HEADS D / 4]``), ``out`` ``[PARTS, 1, N]``.
    """
    launch_dependents(PDL)
    WIDTH: tl.constexpr = HEADS // PARTS * D
    PACK: tl.constexpr = WORD if weight.dtype.element_ty == tl.int32 else 1
    part = tl.program_id(0)
    rows = product_rows(WARPS, ROWS)
    row_mask = rows < N
    tiles = load_tiles(
        weight + part * (WIDTH // PACK), rows, row_mask, HEADS * D, WIDTH, WARPS, CHUNKS, CHUNK, EVICT
    )
    row_scales = load_scales(scales, rows, row_mask)
    columns = part * WIDTH + tl.arange(0, WIDTH)
    wait_for_inputs(PDL)
    mean = joined(means, log_sums, columns // D, columns, HEADS, D, SPLITS)
    store_product(mean, tiles, row_scales, rows, row_mask, out + part * N, WIDTH, CHUNKS, CHUNK, PACK)


@triton.jit
def _add_pairs(one, other, next_one, next_other):
    return one + next_one, other + next_other


@triton.jit
def spread(weights, GROUP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """Weights ``[2, WARPS, H, GROUP, 1]`` of BLOCK positions given to a thread for each column: ``[GROUP D, BLOCK]``.

    A gather, for the reason that ``project.share`` has.
    """
    index = tl.arange(0, GROUP * D * BLOCK)
    place, group = index % BLOCK, index // (D * BLOCK)
    source = (place % 2 * (BLOCK // 2) + place // 2) * GROUP + group
    return tl.reshape(tl.gather(tl.reshape(weights, (GROUP * BLOCK,)), source, axis=0), (GROUP * D, BLOCK))


@triton.jit(do_not_specialize=["start"])
def attend_project(
    qkv, gains, eps, cos, sin, cache_keys, cache_values, head_stride, start, weight, scales, out,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, T: tl.constexpr, BLOCK: tl.constexpr,
    N: tl.constexpr, WARPS: tl.constexpr, ROWS: tl.constexpr, CHUNKS: tl.constexpr, CHUNK: tl.constexpr,
    EVICT: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One line's attention over at most BLOCK positions and its output projection; program ``(key head, rows)``.

    Scores are made by warps, some positions each, and the means of the values by threads, a column each.

    Args:
        qkv, gains, cos, sin: as of ``attend_line``, for T new positions ``start ..``.
        cache_keys, cache_values: one layer's ``[KV_HEADS, >= BLOCK, D]``; what is there was written before the last
            draw (see ``wait.py``).
        weight: ``[N, HEADS D]``, INT8 as words ``[N, HEADS D / 4]``.
        out: ``[KV_HEADS, T, N]``, the product's parts.
    """
    launch_dependents(PDL)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    QKV: tl.constexpr = (HEADS + 2 * KV_HEADS) * D
    PACK: tl.constexpr = WORD if weight.dtype.element_ty == tl.int32 else 1
    head = tl.program_id(0)
    rows = product_rows(WARPS, ROWS)
    row_mask = rows < N
    tiles = load_tiles(
        weight + head * (GROUP * D // PACK), rows, row_mask, HEADS * D, GROUP * D, WARPS, CHUNKS, CHUNK, EVICT
    )
    row_scales = load_scales(scales, rows, row_mask)
    cache_keys += head * head_stride
    cache_values += head * head_stride
    columns = head_columns(WARPS, D)
    places = positions_of(WARPS, BLOCK // (2 * WARPS))
    spots = tl.arange(0, BLOCK)[None, :]
    # A column a thread: the compiler must not read several at once.
    column = tl.max_contiguous(tl.arange(0, GROUP * D) % D, 1)
    keys = tl.load(cache_keys + places * D + columns, mask=places < start, other=0.0)
    values = tl.load(cache_values + spots * D + column[:, None], mask=spots < start, other=0.0)
    grouped = group_columns(columns, GROUP)
    turns = ()
    for step in tl.static_range(T):
        turns = turns + (load_turn(gains, cos, sin, start + step, grouped, LOG2_E * D**-0.5, D),)
        turns = turns + (load_turn(gains + D, cos, sin, start + step, columns, 1.0, D),)
    wait_for_inputs(PDL)
    queries = ()
    writes = tl.program_id(1) == 0
    for step in tl.static_range(T):
        vectors = query_heads(qkv + step * QKV + head * GROUP * D, GROUP, D)
        queries = queries + (turned(vectors, turns[2 * step], grouped, eps, D),)
        vector = qkv + step * QKV + (HEADS + head) * D
        value = tl.load(vector + KV_HEADS * D + column).to(values.dtype)
        key = turned(vector, turns[2 * step + 1], columns, eps, D).to(keys.dtype)
        place = (start + step) * D
        tl.store(cache_keys + place + columns, key, mask=once(columns, WARPS, D) & writes)
        tl.store(cache_values + place + column, value, mask=(tl.arange(0, GROUP * D) < D) & writes)
        keys = tl.where(places == start + step, key, keys)
        values = tl.where(spots == start + step, value[:, None], values)
    for step in tl.static_range(T):
        scores = tl.sum(queries[step] * keys.to(tl.float32), axis=4, keep_dims=True)
        scores = tl.where(places <= start + step, scores, float("-inf"))
        weights = tl.exp2(scores - highest(scores))
        weights = spread(weights, GROUP, D, BLOCK)
        mean, total = tl.reduce((weights * values.to(tl.float32), weights), 1, _add_pairs)
        parts = out + (head * T + step) * N
        store_product(mean / total, tiles, row_scales, rows, row_mask, parts, GROUP * D, CHUNKS, CHUNK, PACK)

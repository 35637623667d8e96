"""Attention of one new position in each of many lines: no context is split, as there are enough programs.

The goal is many bytes in flight and few instructions per byte. The lanes that read one position together form part of
a warp; each part keeps a running softmax over its own positions in registers, starting from the new position. The next
positions are loaded before the current ones are multiplied, the first before the wait. The softmaxes are combined
once, at the end. ``heads.py`` has the register layout.

``attend_pair`` is for the first two positions, as in the predictor's first pass: the cache is not read. Position 0
sees itself alone, so its result is its value; position 1 weighs two values. A program is one warp.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..linear.gemm import INTERPRETED
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


@triton.jit
def _words(cache):
    """View a 16-bit cache as 32-bit words, so that loop-carried registers hold pairs of numbers."""
    if cache.dtype.element_ty.primitive_bitwidth == 16:
        cache = cache.to(tl.pointer_type(tl.int32), bitcast=True)
    return cache


@triton.jit
def _numbers(words, dtype: tl.constexpr):
    shape: tl.constexpr = words.shape
    if dtype.primitive_bitwidth == 32:
        numbers = words
    else:
        if dtype == tl.bfloat16:
            low = (words << 16).to(tl.float32, bitcast=True)
            high = (words & -65536).to(tl.float32, bitcast=True)
        else:
            low = words.to(tl.int16).to(dtype, bitcast=True).to(tl.float32)
            high = (words >> 16).to(tl.int16).to(dtype, bitcast=True).to(tl.float32)
        pairs = tl.join(low, high)
        numbers = tl.reshape(pairs, (shape[0], shape[1], shape[2], shape[3], 2 * shape[4]))
    return numbers


@triton.jit
def _load_before(keys, values, index, columns, start, WIDTH: tl.constexpr):
    pointers, mask = index * WIDTH + columns, index < start
    return tl.load(keys + pointers, mask=mask, other=0), tl.load(values + pointers, mask=mask, other=0)


@triton.jit
def _update(queries, keys, values, visible, best, total, mean):
    """Add positions to running softmaxes; shapes as in ``heads.py``."""
    scores = tl.sum(queries * keys, axis=4, keep_dims=True)
    scores = tl.where(visible, scores, float("-inf"))
    higher = tl.maximum(best, tl.max(scores, axis=2, keep_dims=True))
    weights = tl.exp2(scores - higher)
    old = tl.exp2(best - higher)
    total = total * old + tl.sum(weights, axis=2, keep_dims=True)
    mean = mean * old + tl.sum(weights * values, axis=2, keep_dims=True)
    return higher, total, mean


@triton.jit(do_not_specialize=["start", "window"])
def attend_batch(
    qkv, gains, eps, cos, sin, cache_keys, cache_values, line_stride, head_stride, positions, start, window, out,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, WARPS: tl.constexpr, POSITIONS: tl.constexpr,
    COPIES: tl.constexpr, LOOPS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Attend from one new position per line; ``out`` is ``[B, HEADS, D]``; program ``(line, key head)``.

    Arguments as of ``split.attend_split``. Each of WARPS warps loads POSITIONS positions at once, COPIES per
    instruction. LOOPS: a line may have more old positions than these, written before this graph or the last sampler
    (``pdl.py``).
    """
    launch_dependents(PDL)
    line, head = tl.program_id(0), tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    if positions is not None:
        start = tl.minimum(tl.load(positions + line), window - 1).to(tl.int32)
    offset = line.to(tl.int64) * line_stride + head * head_stride
    cache_keys += offset
    cache_values += offset
    columns = head_columns(WARPS, D, COPIES)
    index = positions_of(WARPS, POSITIONS // COPIES, COPIES)
    dtype: tl.constexpr = cache_keys.dtype.element_ty
    WIDTH: tl.constexpr = D * dtype.primitive_bitwidth // 32  # words per position
    words = head_columns(WARPS, WIDTH, COPIES)
    old_keys, old_values = _words(cache_keys), _words(cache_values)
    # Before the wait: the first positions, and the factors of RMSNorm and RoPE.
    keys, values = _load_before(old_keys, old_values, index, words, start, WIDTH)
    grouped = group_columns(columns, GROUP)
    query_rotation = load_rotation(gains, cos, sin, start, grouped, LOG2_E * D**-0.5, D)
    key_rotation = load_rotation(gains + D, cos, sin, start, columns, 1.0, D)
    wait_for_inputs(PDL)  # for qkv
    qkv += line * (HEADS + 2 * KV_HEADS) * D
    key = rotated_heads(qkv + (HEADS + head) * D, key_rotation, columns, eps, D).to(dtype)
    value = tl.load(qkv + (HEADS + KV_HEADS + head) * D + columns).to(dtype)
    queries = rotated_heads(query_heads(qkv + head * GROUP * D, GROUP, D), query_rotation, grouped, eps, D)
    first_copy = once(columns, WARPS, D, COPIES)
    tl.store(cache_keys + start * D + columns, key, mask=first_copy)
    tl.store(cache_values + start * D + columns, value, mask=first_copy)
    # Every softmax starts at the new position's score, but only one of them counts its weight and value.
    best = tl.sum(queries * key.to(tl.float32), axis=4, keep_dims=True)
    total = tl.where(positions_of(WARPS, 1, COPIES) == 0, 1.0, tl.zeros_like(best))
    mean = total * value.to(tl.float32)
    if LOOPS:
        # The interpreter needs a Python number as the loop's end.
        for first in tl.range(0, start.handle.data.item() if INTERPRETED else start, WARPS * POSITIONS, num_stages=1):
            next_keys, next_values = tl.zeros_like(keys), tl.zeros_like(values)
            if first + WARPS * POSITIONS < start:
                # In a branch, as otherwise the assembler moves these loads to the end of the loop. Positions are
                # clamped instead of masked: all of them can be read.
                ahead = tl.minimum(first + WARPS * POSITIONS + index, start - 1) * WIDTH + words
                next_keys, next_values = tl.load(old_keys + ahead), tl.load(old_values + ahead)
            wide_keys, wide_values = _numbers(keys, dtype), _numbers(values, dtype)
            best, total, mean = _update(queries, wide_keys, wide_values, first + index < start, best, total, mean)
            keys, values = next_keys, next_values
    else:
        wide_keys, wide_values = _numbers(keys, dtype), _numbers(values, dtype)
        best, total, mean = _update(queries, wide_keys, wide_values, index < start, best, total, mean)
    # Combine the softmaxes of all warp parts.
    share = tl.exp2(best - highest(best))
    mean = sum_positions(mean * share) / sum_positions(total * share)
    pointers = out + (line * HEADS + head * GROUP) * D + tl.arange(0, GROUP * D)
    tl.store(pointers, tl.reshape(mean, (GROUP * D,)).to(out.dtype.element_ty))


@triton.jit
def attend_pair(
    qkv, gains, eps, cos, sin, cache_keys, cache_values, line_stride, head_stride, out,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """As ``split.attend_split`` from positions 0 and 1, adjacent in ``qkv``: ``out`` is ``[2 B, HEADS, D]``."""
    launch_dependents(PDL)
    line, head = tl.program_id(0), tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    QKV: tl.constexpr = (HEADS + 2 * KV_HEADS) * D
    dtype: tl.constexpr = cache_keys.dtype.element_ty
    columns = head_columns(1, D, 1)
    grouped = group_columns(columns, GROUP)
    query_rotation = load_rotation(gains, cos, sin, 1, grouped, LOG2_E * D**-0.5, D)
    first_rotation = load_rotation(gains + D, cos, sin, 0, columns, 1.0, D)
    second_rotation = load_rotation(gains + D, cos, sin, 1, columns, 1.0, D)
    wait_for_inputs(PDL)  # for qkv
    first = qkv + 2 * line.to(tl.int64) * QKV
    second = first + QKV
    vector = (HEADS + head) * D
    first_key = rotated_heads(first + vector, first_rotation, columns, eps, D).to(dtype)
    second_key = rotated_heads(second + vector, second_rotation, columns, eps, D).to(dtype)
    first_value = tl.load(first + vector + KV_HEADS * D + columns).to(dtype)
    second_value = tl.load(second + vector + KV_HEADS * D + columns).to(dtype)
    place = line.to(tl.int64) * line_stride + head * head_stride + columns
    tl.store(cache_keys + place, first_key)
    tl.store(cache_keys + place + D, second_key)
    tl.store(cache_values + place, first_value)
    tl.store(cache_values + place + D, second_value)
    queries = rotated_heads(query_heads(second + head * GROUP * D, GROUP, D), query_rotation, grouped, eps, D)
    first_score = tl.sum(queries * first_key.to(tl.float32), axis=4, keep_dims=True)
    second_score = tl.sum(queries * second_key.to(tl.float32), axis=4, keep_dims=True)
    best = tl.maximum(first_score, second_score)
    first_weight, second_weight = tl.exp2(first_score - best), tl.exp2(second_score - best)
    total = first_weight + second_weight
    mean = (first_weight * first_value.to(tl.float32) + second_weight * second_value.to(tl.float32)) / total
    rows = query_heads(out + (2 * line.to(tl.int64) * HEADS + head * GROUP) * D, GROUP, D) + columns
    tl.store(rows, (first_value + tl.zeros_like(mean)).to(out.dtype.element_ty))
    tl.store(rows + HEADS * D, mean.to(out.dtype.element_ty))

"""Attention of many lines' first two positions, as in the predictor's first pass: the cache is not read."""
# Position 0 sees itself alone, so its result is its value; position 1 weighs two values. A program is one warp.

from __future__ import annotations

import triton
import triton.language as tl

from ..pdl import launch_dependents, wait_for_inputs
from .heads import LOG2_E, group_columns, head_columns, load_rotation, query_heads, rotated_heads


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

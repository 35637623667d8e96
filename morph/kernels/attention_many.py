"""Attention of one new position in each of many lines: enough programs without splitting a line's context.

As ``attention.attend``, but the new position's key and value are made once and stand apart from those of the cache,
which come through the compiler's pipeline; all multiplication is on the plain units, for two queries a key are too few
to fill the tensor cores' rows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .attention import rotated
from .project_many import INTERPRETED
from .wait import launch_dependents, wait_for_inputs


@triton.jit(do_not_specialize=["start", "window"])
def attend_many(
    qkv, gains, eps, cos, sin, cache_keys, cache_values, line_stride, head_stride, positions, start, window, out,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Attend from one new position a line, ``out`` is ``[B, HEADS, D]``; program ``(line, key head)``.

    The arguments are those of ``attention.attend``; STAGES blocks are on their way together.
    """
    launch_dependents(PDL)
    line, head = tl.program_id(0), tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    offset = line.to(tl.int64) * line_stride + head * head_stride
    cache_keys += offset
    cache_values += offset
    dims = tl.arange(0, D)
    qkv += line * (HEADS + 2 * KV_HEADS) * D
    wait_for_inputs(PDL)
    if positions is not None:
        start = tl.minimum(tl.load(positions + line), window - 1).to(tl.int32)
    heads = head * GROUP + tl.arange(0, GROUP)
    all_own = start + tl.zeros((GROUP,), tl.int32)
    queries = rotated(qkv + heads * D, heads >= 0, gains, eps, cos, sin, all_own, D) * (D**-0.5)
    own = start + tl.zeros((1,), tl.int32)
    key = rotated(qkv + (HEADS + head) * D + own * 0, own >= 0, gains + D, eps, cos, sin, own, D)
    key = key.to(cache_keys.dtype.element_ty)
    value = tl.load(qkv + (HEADS + KV_HEADS + head) * D + dims).to(cache_values.dtype.element_ty)
    tl.store(cache_keys + own[:, None] * D + dims[None, :], key)
    tl.store(cache_values + start * D + dims, value)
    best = tl.sum(queries * key.to(tl.float32), axis=1)
    total = tl.full((GROUP,), 1.0, tl.float32)
    mean = tl.zeros((GROUP, D), tl.float32) + value.to(tl.float32)[None, :]
    # The interpreter's loops want a number.
    for first in tl.range(0, start.handle.data.item() if INTERPRETED else start, BLOCK, num_stages=STAGES):
        places = first + tl.arange(0, BLOCK)
        pointers = places[:, None] * D + dims[None, :]
        keys = tl.load(cache_keys + pointers, mask=(places < start)[:, None], other=0.0)
        values = tl.load(cache_values + pointers, mask=(places < start)[:, None], other=0.0)
        scores = tl.sum(queries[:, None, :] * keys[None, :, :].to(tl.float32), axis=2)
        scores = tl.where((places < start)[None, :], scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, axis=1))
        weights = tl.exp(scores - higher[:, None])
        old = tl.exp(best - higher)
        total = total * old + tl.sum(weights, axis=1)
        mean = mean * old[:, None] + tl.sum(weights[:, :, None] * values[None, :, :].to(tl.float32), axis=1)
        best = higher
    pointers = out + (line * HEADS + heads)[:, None] * D + dims[None, :]
    tl.store(pointers, (mean / total[:, None]).to(out.dtype.element_ty))

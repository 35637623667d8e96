"""RoPE of the codec's queries and keys, and the write of keys and values to the rings, in one pass."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from ...codec.forward import Rings
from ...model.layers import Angles
from ..precompile import Launch, run

HEADS = 8  # per program


@triton.jit
def rotate_into_ring(
    qkv, cos, sin, slots, queries, keys, values, stride, head_stride, length,
    HEADS: tl.constexpr, COUNT: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """RoPE of some heads of one frame of line ``row // length``, float32 inside; program ``(row, block of heads)``.

    Args:
        qkv: ``[R, COUNT + KV, D]``: HEADS queries, KV = COUNT - HEADS keys, and as many values.
        cos, sin: float32 ``[R, D]``; the first half of the sines is negated.
        slots: int64 ``[R]``, the frame's slot in its line's ring.
        queries: ``[R, HEADS, D]``; keys, values: the rings ``[B, KV, slots, D]``, strides of B and KV.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, D // 2)[None, :]
    mask = (head < COUNT) & (column < D // 2)
    source = qkv + row * (2 * COUNT - HEADS) * D
    low = tl.load(source + head * D + column, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(source + head * D + column + D // 2, mask=mask, other=0.0).to(tl.float32)
    angle = row * D + column
    rotated_low = low * tl.load(cos + angle) + high * tl.load(sin + angle)
    rotated_high = high * tl.load(cos + angle + D // 2) + low * tl.load(sin + angle + D // 2)
    dtype = queries.dtype.element_ty
    is_query, is_key = mask & (head < HEADS), mask & (head >= HEADS)
    out = queries + row * HEADS * D + head * D + column
    tl.store(out, rotated_low.to(dtype), mask=is_query)
    tl.store(out + D // 2, rotated_high.to(dtype), mask=is_query)
    place = row // length * stride + (head - HEADS) * head_stride + tl.load(slots + row) * D + column
    tl.store(keys + place, rotated_low.to(dtype), mask=is_key)
    tl.store(keys + place + D // 2, rotated_high.to(dtype), mask=is_key)
    value = source + (head + COUNT - HEADS) * D + column
    tl.store(values + place, tl.load(value, mask=is_key), mask=is_key)
    tl.store(values + place + D // 2, tl.load(value + D // 2, mask=is_key), mask=is_key)


def rotate_into(qkv: torch.Tensor, angles: Angles, rings: Rings, launch: Launch = run) -> torch.Tensor:
    qkv, slots = qkv.contiguous(), rings.slots.contiguous()
    lines, new, _, head_dim = qkv.shape
    kv_heads = rings.keys.shape[1]
    count = qkv.shape[2] - kv_heads
    queries = qkv.new_empty(lines, new, count - kv_heads, head_dim)
    cos, sin = angles.cos.contiguous(), angles.sin.contiguous()
    block = min(HEADS, triton.next_power_of_2(count))
    launch(
        rotate_into_ring, (lines * new, triton.cdiv(count, block)), qkv, cos, sin, slots, queries, rings.keys,
        rings.values, rings.keys.stride(0), rings.keys.stride(1), new, HEADS=count - kv_heads, COUNT=count,
        D=head_dim, BLOCK=block,
    )  # fmt: skip
    return queries

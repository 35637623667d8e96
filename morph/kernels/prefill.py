"""The operations of a prefill between its linear layers: norm, RoPE and the cache write in one kernel.

Torch's operations write queries and keys to memory five times in float32: of the 28 ms that 64 prompts of 88
positions took (0.6B, H200), the linear layers were 7.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..model.layers import LayerOps, LayerPass, LayerStack, attend
from ..model.static_cache import FillView
from .alignment import probe_alignment
from .attention.launch import AttentionInputs, attend_prompt_alone, attends_alone
from .plan import Plan
from .precompile import run
from .rows import add_norm, gate
from .states import CacheSpan

HEADS = 8  # per program


@triton.jit(do_not_specialize=("length",))
def rotate_and_cache(
    qkv, gains, cos, sin, queries, keys, values, rows, stride, head_stride, length, eps,
    HEADS: tl.constexpr, COUNT: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """RMSNorm and RoPE of some heads of one position, float32 inside; keys and values go to the cache.

    Program ``(row, block of heads)``; row i is position ``i % length`` of line ``i // length``. ``qkv`` is ``[R,
    COUNT + KV, D]``: HEADS queries, KV = COUNT - HEADS keys, and as many values; ``queries`` ``[R, COUNT, D]``, keys
    included. ``gains`` is float32 ``[COUNT, D]``, ``cos`` and ``sin`` ``[length, D]``, the first half of the sines
    negated. ``keys`` and ``values`` are the cache, ``[B, KV, T, D]``, ``rows`` the lines' index in B.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.arange(0, D // 2)[None, :]
    mask = (head < COUNT) & (column < D // 2)
    source = qkv + row * (2 * COUNT - HEADS) * D
    offsets = head * D + column
    low = tl.load(source + offsets, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(source + offsets + D // 2, mask=mask, other=0.0).to(tl.float32)
    squares = tl.sum(low * low + high * high, axis=1)
    scale = tl.rsqrt(squares / D + eps)[:, None]
    low *= scale * tl.load(gains + offsets, mask=mask, other=0.0)
    high *= scale * tl.load(gains + offsets + D // 2, mask=mask, other=0.0)
    angle = (row % length) * D + column
    rotated_low = low * tl.load(cos + angle) + high * tl.load(sin + angle)
    rotated_high = high * tl.load(cos + angle + D // 2) + low * tl.load(sin + angle + D // 2)
    dtype = queries.dtype.element_ty
    out = queries + row * COUNT * D + offsets
    tl.store(out, rotated_low.to(dtype), mask=mask)
    tl.store(out + D // 2, rotated_high.to(dtype), mask=mask)
    is_key = mask & (head >= HEADS)
    place = tl.load(rows + row // length) * stride + (head - HEADS) * head_stride + row % length * D + column
    tl.store(keys + place, rotated_low.to(dtype), mask=is_key)
    tl.store(keys + place + D // 2, rotated_high.to(dtype), mask=is_key)
    value = source + (head + COUNT - HEADS) * D + column
    tl.store(values + place, tl.load(value, mask=is_key), mask=is_key)
    tl.store(values + place + D // 2, tl.load(value + D // 2, mask=is_key), mask=is_key)


class PromptOps(LayerOps):
    """``LayerOps`` of passes whose lines are all at the same positions (``Angles.span``), as prompts are."""

    def attend(
        self, decoder: LayerStack, index: int, qkv: torch.Tensor, layer_pass: LayerPass
    ) -> torch.Tensor:
        """As ``LayerOps.attend``, for a ``FillView`` of the cache: raise TypeError for another."""
        view = layer_pass.view
        if not isinstance(view, FillView):
            raise TypeError(f"prompts fill the cache, and this view of it is a {type(view).__name__}")
        lines, length = qkv.shape[:2]
        if attends_alone(max(lines, view.cache.lines), length):
            span = CacheSpan(view.cache, layer_pass.angles, length, length, probe=layer_pass.probe)
            inputs = AttentionInputs(decoder, index, qkv.contiguous().view(length, -1), span)
            out = attend_prompt_alone(Plan(), inputs).view(1, length, -1)
            probe_alignment(Plan(), inputs)
            return out
        rotated = _rotate(decoder, index, qkv.contiguous(), layer_pass, view).transpose(1, 2)
        queries, keys = rotated[:, : decoder.heads], rotated[:, decoder.heads :]
        values = qkv[:, :, decoder.heads + decoder.kv_heads :].transpose(1, 2)
        if (probe := layer_pass.probe_of(index)) is not None:
            probe.measure(queries, keys)
        return attend(queries, keys, values, None).transpose(1, 2).flatten(2)

    def gate(self, gate_up: torch.Tensor) -> torch.Tensor:
        return gate(gate_up)

    def add_norm(
        self, states: torch.Tensor, added: torch.Tensor, gain: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return add_norm(states, added, gain, eps)


def _rotate(
    decoder: LayerStack, index: int, qkv: torch.Tensor, layer_pass: LayerPass, view: FillView
) -> torch.Tensor:
    """Fill layer ``index`` of the cache; return queries and keys after RoPE: ``[B, T, heads + kv_heads, D]``."""
    lines, length, _, head_dim = qkv.shape
    count = decoder.heads + decoder.kv_heads
    out = qkv.new_empty(lines, length, count, head_dim)
    keys, values = view.cache.keys[index], view.cache.values[index]
    block = min(HEADS, triton.next_power_of_2(count))
    run(
        rotate_and_cache, (lines * length, triton.cdiv(count, block)), qkv, layer_pass.head_norms[index],
        layer_pass.angles.cos, layer_pass.angles.sin, out, keys, values, view.rows, keys.stride(0), keys.stride(1),
        length, decoder.eps, HEADS=decoder.heads, COUNT=count, D=head_dim, BLOCK=block,
    )  # fmt: skip
    return out

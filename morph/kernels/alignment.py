"""Find the text token of each line's frame from one query head's attention (``model.alignment``).

One small program per line, launched after that layer's attention, which has written the newest key. It is a separate
launch because the attention kernels combine softmaxes in several ways, none of which keeps single weights.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl

from ..words.alignment import NO_TOKEN, SCALE
from .attention.heads import LOG2_E
from .attention.launch import AttentionInputs
from .attention.split import load_slots, rotated
from .pdl import launch_dependents, wait_for_inputs
from .plan import Plan, launch

BLOCK = 128  # positions whose keys are loaded at once: 32 KB in bf16
WARPS = 8
NOTHING_SEEN = tl.constexpr(NO_TOKEN)
STEPS = tl.constexpr(float(SCALE))
FAR = tl.constexpr(2**31 - 1)  # beyond all positions


def probe_alignment(plan: Plan, inputs: AttentionInputs) -> None:
    """Launch ``find_token`` for ``span.probe`` if this layer is the head's; call it after the layer's attention."""
    span, stack, probe = inputs.span, inputs.stack, inputs.span.probe
    if probe is None or probe.head.layer != inputs.index:
        return
    keys = span.cache.keys[inputs.index]
    group = stack.heads // stack.kv_heads
    block = max(16, min(BLOCK, triton.next_power_of_2(span.window)))
    launch(
        find_token, (inputs.lines,), plan, WARPS, qkv=inputs.qkv, gain=stack.qk_norms[inputs.index, 0], eps=stack.eps,
        cos=span.angles.cos, sin=span.angles.sin, cache_keys=keys[:, probe.head.head // group],
        line_stride=keys.stride(0), positions=probe.positions, window=span.window, spans=probe.spans,
        span_stride=probe.spans.stride(0), out=probe.out, out_stride=probe.out.stride(0), before=probe.before,
        before_stride=0 if probe.before is None else probe.before.stride(0), head=probe.head.head,
        QKV=(stack.heads + 2 * stack.kv_heads) * stack.head_dim, D=stack.head_dim, T=span.length, BLOCK=block,
        EARLY=not span.is_prompt,
    )  # fmt: skip


@triton.jit
def add_keys(query, keys, slots, newest, first, after, best, total, mass, highest, place):
    """Add keys ``[BLOCK, D]`` at positions ``slots`` to a running softmax, and to the text's share of it."""
    # ``query`` is float32 [1, D], scaled for powers of two. The text is at first .. after - 1; the sum of its weights
    # is ``mass``, its highest score ``highest`` at ``place``.
    scores = tl.sum(query * keys.to(tl.float32), axis=1)
    scores = tl.where(slots <= newest, scores, float("-inf"))
    is_text = (slots >= first) & (slots < after)
    higher = tl.maximum(best, tl.max(scores, axis=0))
    weights = tl.exp2(scores - higher)
    old = tl.exp2(best - higher)
    total = total * old + tl.sum(weights, axis=0)
    mass = mass * old + tl.sum(tl.where(is_text, weights, 0.0), axis=0)
    texts = tl.where(is_text, scores, float("-inf"))
    found = tl.max(texts, axis=0)
    nearest = tl.min(tl.where(is_text & (texts == found), slots, FAR), axis=0)
    place = tl.where(found > highest, nearest, place)
    return higher, total, mass, tl.maximum(highest, found), place


@triton.jit(do_not_specialize=["window", "span_stride", "out_stride", "before_stride", "head"])
def find_token(
    qkv, gain, eps, cos, sin, cache_keys, line_stride, positions, window, spans, span_stride, out, out_stride,
    before, before_stride, head,
    QKV: tl.constexpr, D: tl.constexpr, T: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the text token that a query head attends to most, from each line's newest position; program ``(line)``.

    Args:
        qkv: ``[B T, QKV]`` for T new positions per line, query heads first; with T above 1, of positions 0 .. T - 1.
        gain: the query norm's weight ``[D]``; cos, sin: float32 ``[positions, D]``.
        cache_keys: the head's ``[B, >= window, D]``.
        positions: int64 ``[B]``, at most ``window - 1``.
        spans, out, before: see ``model.layers.AlignmentProbe``.
        EARLY: older keys were written before this graph began, so they are loaded before the wait.
    """
    launch_dependents(PDL)
    line = tl.program_id(0)
    newest = tl.minimum(tl.load(positions + line), window - 1).to(tl.int32)
    first = tl.load(spans + line * span_stride).to(tl.int32)
    after = first + tl.load(spans + line * span_stride + 1).to(tl.int32)
    cache_keys += line.to(tl.int64) * line_stride
    slots = tl.arange(0, BLOCK)
    if EARLY:
        keys = load_slots(cache_keys, slots, newest, D)
    wait_for_inputs(PDL)  # for qkv, and the attention that wrote the newest key
    if EARLY:
        new = tl.load(cache_keys + newest * D + tl.arange(0, D))
        keys = tl.where((slots == newest)[:, None], new[None, :], keys)
    else:
        keys = load_slots(cache_keys, slots, newest + 1, D)
    row = line * T + (newest if T > 1 else 0)
    one = tl.arange(0, 1)
    query = rotated(qkv + row * QKV + head * D + one, one == 0, gain, eps, cos, sin, newest + one, D)
    query = query * (LOG2_E * D**-0.5)
    place = newest * 0
    total = place.to(tl.float32)
    best, mass, highest = total - float("inf"), total, total - float("inf")
    best, total, mass, highest, place = add_keys(
        query, keys, slots, newest, first, after, best, total, mass, highest, place
    )
    start = newest * 0 + BLOCK
    while start <= newest:
        slots = start + tl.arange(0, BLOCK)
        keys = load_slots(cache_keys, slots, newest + 1, D)
        best, total, mass, highest, place = add_keys(
            query, keys, slots, newest, first, after, best, total, mass, highest, place
        )
        start += BLOCK
    seen = highest > float("-inf")
    weight = tl.where(seen, tl.exp2(highest - best) / total, 0.0)
    out += line * out_stride
    if before is not None:
        before += line * before_stride
        for index in tl.static_range(3):
            tl.store(before + index, tl.load(out + index))
    tl.store(out, tl.where(seen, place - first + 1, NOTHING_SEEN).to(tl.int64))
    tl.store(out + 1, (weight * STEPS + 0.5).to(tl.int64))
    tl.store(out + 2, (mass / total * STEPS + 0.5).to(tl.int64))

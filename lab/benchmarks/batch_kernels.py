"""What each kernel of a batch costs alone, and torch's products of the same shapes beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from qwen3_tts_morph.morph.kernels import frame as fused
from qwen3_tts_morph.morph.kernels import layer as passes
from qwen3_tts_morph.morph.kernels.layer import look_up, project
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.kernels.states import Inputs, Place, States
from qwen3_tts_morph.morph.model.layers import LayerStack

if TYPE_CHECKING:
    from .kernels import Bench

FRAME_POSITION = 8  # of the predictor's attention


def kernels_of_many(bench: Bench, plan: Plan, batch: int) -> dict[str, tuple[Callable[[Any, int], Any], int]]:
    """The kernels of the talker's layers for a batch, and the predictor's attention: calls of (layer, index), bytes."""
    decoder, slots = bench.weights.talker, bench.slots(batch, 200, 256)
    first, width = decoder.layers[0], len(decoder.norm)
    inputs = Inputs(bench.weights.first_table, slots.state.tokens)
    states = look_up(plan, inputs, first.input_norm)
    qkv = torch.randn(batch, len(first.qkv), device=bench.device)
    heads = torch.randn(batch, first.out.shape[1], device=bench.device).to(decoder.norm.dtype)
    active = torch.randn(batch, first.down.shape[1], device=bench.device).to(decoder.norm.dtype)
    left = States.empty(plan, batch, decoder.norm)
    talker = Place(slots.cache, slots.angles, 1, 256, positions=slots.state.positions)
    frame = Place(slots.frame_cache, slots.frame_angles, 1, FRAME_POSITION + 1, FRAME_POSITION)
    row = 2 * decoder.kv_heads * decoder.head_dim * decoder.norm.itemsize  # a position's keys and values

    def attend(which: LayerStack, place: Place, index: int) -> Any:
        return passes._attend_lines(which, index % len(which.layers), plan, qkv, place)

    def add(inputs: Any, weight: Any, norm: Any) -> None:
        project(plan, inputs, weight, left.wide, residual=left, next_norm=norm)

    def gate_up(layer: Any, _: int) -> None:
        project(plan, states, layer.gate_up, active, layer.post_norm, decoder.eps, gated=True)

    return {
        "look up": (lambda layer, _: look_up(plan, inputs, layer.input_norm), batch * width * 2),
        "norm + qkv": (
            lambda layer, _: project(plan, states, layer.qkv, qkv, layer.input_norm, decoder.eps),
            first.qkv.nbytes,
        ),
        "attention at 200": (lambda _, index: attend(decoder, talker, index), batch * 201 * row),
        "predictor's attention": (
            lambda _, index: attend(bench.weights.predictor, frame, index),
            batch * (FRAME_POSITION + 1) * row,
        ),
        "o-proj + residual": (
            lambda layer, _: add(Inputs(heads), layer.out, layer.post_norm),
            first.out.nbytes,
        ),
        "norm + gate_up + swiglu": (gate_up, first.gate_up.nbytes),
        "down + residual": (
            lambda layer, _: add(Inputs(active), layer.down, layer.input_norm),
            first.down.nbytes,
        ),
    }


def many_table(bench: Bench, plan: Plan, label: str, batch: int) -> None:
    """Each kernel of a batch alone, over all layers in turn; torch's products of the same shapes beside them."""
    layers = bench.weights.talker.layers

    def note(what: str, action: Callable[[], Any], times: int, size: int) -> None:
        bench.note_kernel(f"{what}, batch {batch}, {label}", action, times, size)

    for what, (call, size) in kernels_of_many(bench, plan, batch).items():
        note(what, lambda call=call: [call(one, i) for i, one in enumerate(layers)], len(layers), size)
    heads, predictor = bench.weights.heads, bench.weights.predictor
    slots = bench.slots(batch, 200, 256)
    narrow = bench.weights.tables[0][:, : len(predictor.norm)].contiguous()
    state = look_up(plan, Inputs(narrow, slots.state.report[:, 1]), predictor.norm)
    logits = torch.randn(batch, heads.shape[1], device=bench.device)

    def draw() -> None:
        for group in range(len(heads)):
            fused._draw(bench.weights, slots, plan, logits, group, group + 1)

    note(
        "norm + head",
        lambda: [project(plan, state, head, logits, predictor.norm, 1e-6) for head in heads],
        len(heads),
        heads[0].nbytes,
    )
    note("draw", draw, len(heads), logits.nbytes)
    for name in ("qkv", "out", "gate_up", "down"):
        weights = [getattr(layer, name) for layer in layers]
        x = torch.randn(batch, weights[0].shape[1], device=bench.device).to(weights[0].dtype)
        what = f"torch's product alone, {name}"
        note(what, lambda x=x, all=weights: [x @ one.T for one in all], len(layers), weights[0].nbytes)

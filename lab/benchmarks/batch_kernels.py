"""Time each kernel of a batch alone, beside torch's GEMMs of the same shapes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from qwen3_tts_morph.morph.kernels import frame as fused
from qwen3_tts_morph.morph.kernels.attention.launch import AttentionInputs, attend_lines
from qwen3_tts_morph.morph.kernels.embed import look_up
from qwen3_tts_morph.morph.kernels.linear.launch import project
from qwen3_tts_morph.morph.kernels.states import CacheSpan, Inputs, Projection, Residual
from qwen3_tts_morph.morph.model.layers import LayerStack

from .bench import Bench, call_each
from .random_weights import unquantized

FRAME_POSITION = 8  # where the predictor's attention is measured


def batch_kernels(bench: Bench, batch: int) -> dict[str, tuple[Callable[[Any, int], Any], int]]:
    """Return the kernels of the talker's layers and the predictor's attention: calls of (layer, index), and bytes."""
    plan, decoder, slots = bench.plan, bench.weights.talker, bench.slots(batch, 200, 256)
    first, width = decoder.layers[0], len(decoder.norm)
    inputs = Inputs(bench.weights.first_table, slots.state.tokens)
    residual = look_up(plan, inputs, first.input_norm, decoder.eps)
    qkv = torch.randn(batch, len(first.qkv), device=bench.device)
    heads = torch.randn(batch, first.out.shape[1], device=bench.device).to(decoder.norm.dtype)
    active = torch.randn(batch, first.down.shape[1], device=bench.device).to(decoder.norm.dtype)
    target = Residual.empty(plan, batch, decoder.norm)
    talker = CacheSpan(slots.cache, slots.angles, 1, 256, positions=slots.state.positions)
    frame = CacheSpan(slots.frame_cache, slots.frame_angles, 1, FRAME_POSITION + 1, FRAME_POSITION)
    position_bytes = 2 * decoder.kv_heads * decoder.head_dim * decoder.norm.itemsize  # keys and values

    def attend(which: LayerStack, span: CacheSpan, index: int) -> Any:
        return attend_lines(plan, AttentionInputs(which, index % len(which.layers), qkv, span))

    def add(inputs: Any, weight: Any, norm: Any) -> None:
        project(plan, inputs, target.values, Projection(weight, residual=target, next_norm=norm))

    def gate_up(layer: Any, _: int) -> None:
        project(plan, residual, active, Projection(layer.gate_up, layer.post_norm, decoder.eps, gated=True))

    return {
        "look up": (lambda layer, _: look_up(plan, inputs, layer.input_norm, decoder.eps), batch * width * 2),
        "norm + qkv": (
            lambda layer, _: project(plan, residual, qkv, Projection(layer.qkv, layer.input_norm, decoder.eps)),
            unquantized(first.qkv).nbytes,
        ),
        "attention at 200": (lambda _, index: attend(decoder, talker, index), batch * 201 * position_bytes),
        "predictor's attention": (
            lambda _, index: attend(bench.weights.predictor, frame, index),
            batch * (FRAME_POSITION + 1) * position_bytes,
        ),
        "o-proj + residual": (
            lambda layer, _: add(Inputs(heads), layer.out, layer.post_norm),
            unquantized(first.out).nbytes,
        ),
        "norm + gate_up + swiglu": (gate_up, unquantized(first.gate_up).nbytes),
        "down + residual": (
            lambda layer, _: add(Inputs(active), layer.down, layer.input_norm),
            unquantized(first.down).nbytes,
        ),
    }


def batch_table(bench: Bench, batch: int) -> None:
    """Measure each kernel of a batch alone, over all layers in turn, and torch's GEMMs of the same shapes."""
    plan, layers = bench.plan, bench.weights.talker.layers

    def note(what: str, action: Callable[[], Any], times: int, size: int) -> None:
        bench.note_kernel(f"{what}, batch {batch}", action, times, size)

    def call_layers(call: Callable[[Any, int], Any]) -> list[Any]:
        return [call(one, index) for index, one in enumerate(layers)]

    for what, (call, size) in batch_kernels(bench, batch).items():
        note(what, partial(call_layers, call), len(layers), size)
    heads, predictor = unquantized(bench.weights.heads), bench.weights.predictor
    slots = bench.slots(batch, 200, 256)
    narrow = bench.weights.tables[0][:, : len(predictor.norm)].contiguous()
    residual = look_up(plan, Inputs(narrow, slots.state.report[:, 1]), predictor.norm, predictor.eps)
    logits = torch.randn(batch, heads.shape[1], device=bench.device)

    def sample() -> None:
        for group in range(len(heads)):
            fused.sample(slots, plan, logits, (group, group + 1))

    note(
        "norm + head",
        partial(
            call_each,
            lambda head: project(plan, residual, logits, Projection(head, predictor.norm, 1e-6)),
            heads,
        ),
        len(heads),
        heads[0].nbytes,
    )
    note("sampling", sample, len(heads), logits.nbytes)
    for name in ("qkv", "out", "gate_up", "down"):
        weights = [getattr(layer, name) for layer in layers]
        x = torch.randn(batch, weights[0].shape[1], device=bench.device).to(weights[0].dtype)
        what = f"torch's product alone, {name}"
        note(what, partial(call_each, x.matmul, [one.T for one in weights]), len(layers), weights[0].nbytes)

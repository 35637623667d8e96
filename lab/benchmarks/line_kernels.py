"""Time each kernel of one line, replayed alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from qwen3_tts_morph.morph.kernels.linear.launch import project
from qwen3_tts_morph.morph.kernels.states import Inputs, Projection, Residual

from .bench import Bench, call_each
from .random_weights import unquantized


def kernel_table(bench: Bench) -> None:
    """Measure each kernel of the talker's layers alone, over all layers in turn (more weights than the cache holds)."""
    plan, decoder = bench.plan, bench.weights.talker
    first = decoder.layers[0]
    like, width = first.input_norm, len(first.input_norm)
    residual = Residual(torch.randn(1, width, device=bench.device), None)
    active = torch.randn(1, first.down.shape[1], device=bench.device).to(like.dtype)
    qkv = torch.empty(1, len(first.qkv), device=bench.device)
    partials = torch.randn(decoder.kv_heads, 1, width, device=bench.device).to(like.dtype)

    def gate_up(layer: Any) -> None:
        project(
            plan,
            residual,
            active,
            Projection(layer.gate_up, layer.post_norm, decoder.eps, gated=True, partials=partials),
        )

    kinds: dict[str, tuple[Callable[[Any], None], int]] = {
        "norm + qkv": (
            lambda layer: project(plan, residual, qkv, Projection(layer.qkv, layer.input_norm, decoder.eps)),
            unquantized(first.qkv).nbytes,
        ),
        "partials + norm + gate_up + swiglu": (gate_up, unquantized(first.gate_up).nbytes),
        "down + residual": (
            lambda layer: project(
                plan,
                Inputs(active),
                torch.empty_like(residual.values),
                Projection(layer.down, residual=residual, partials=partials),
            ),
            unquantized(first.down).nbytes,
        ),
    }
    for what, (action, size) in kinds.items():
        bench.note_kernel(
            what,
            partial(call_each, action, decoder.layers),
            len(decoder.layers),
            size,
        )
    heads = unquantized(bench.weights.heads)
    logits = torch.empty(1, heads.shape[1], device=bench.device)
    state = Residual(torch.randn(1, heads.shape[2], device=bench.device), None)
    norm = bench.weights.predictor.norm
    bench.note_kernel(
        "norm + head",
        partial(call_each, lambda head: project(plan, state, logits, Projection(head, norm, 1e-6)), heads),
        len(heads),
        heads[0].nbytes,
    )

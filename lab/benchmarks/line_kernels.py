"""What each kernel of one line costs: alone, over and over, and in its chain, by leaving it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from qwen3_tts_morph.morph.kernels import frame as fused
from qwen3_tts_morph.morph.kernels import layer as passes
from qwen3_tts_morph.morph.kernels.attention.one_line import attend_line, attend_project, join_project
from qwen3_tts_morph.morph.kernels.embed import embed_frame
from qwen3_tts_morph.morph.kernels.layer import project
from qwen3_tts_morph.morph.kernels.linear.gemv import project_few
from qwen3_tts_morph.morph.kernels.plan import Plan, launch
from qwen3_tts_morph.morph.kernels.sampling import draw_codes, draw_first
from qwen3_tts_morph.morph.kernels.states import Inputs, States

if TYPE_CHECKING:
    from .kernels import Bench

OF_TALKER = (attend_line, join_project, project_few, embed_frame, draw_first)
OF_PREDICTOR = (attend_project, project_few, draw_codes)


def kernel_table(bench: Bench, plan: Plan, label: str) -> None:
    """Each kernel of the talker's layers alone, over all of them in turn (more weights than the cache holds)."""
    decoder = bench.weights.talker
    first = decoder.layers[0]
    like, width = first.input_norm, len(first.input_norm)
    states = States(torch.randn(1, width, device=bench.device), None)
    active = torch.randn(1, first.down.shape[1], device=bench.device).to(like.dtype)
    qkv = torch.empty(1, len(first.qkv), device=bench.device)
    partials = torch.randn(decoder.kv_heads, 1, width, device=bench.device).to(like.dtype)

    def gate_up(layer: Any) -> None:
        project(
            plan, states, layer.gate_up, active, layer.post_norm, decoder.eps, gated=True, partials=partials
        )

    kinds: dict[str, tuple[Callable[[Any], None], int]] = {
        "norm + qkv": (
            lambda layer: project(plan, states, layer.qkv, qkv, layer.input_norm, decoder.eps),
            first.qkv.nbytes,
        ),
        "parts + norm + gate_up + swiglu": (gate_up, first.gate_up.nbytes),
        "down + residual": (
            lambda layer: project(
                plan,
                Inputs(active),
                layer.down,
                torch.empty_like(states.wide),
                residual=states,
                partials=partials,
            ),
            first.down.nbytes,
        ),
    }
    for what, (action, size) in kinds.items():
        bench.note_kernel(
            f"{what}, {label}",
            lambda action=action: [action(layer) for layer in decoder.layers],
            len(decoder.layers),
            size,
        )
    heads = bench.weights.heads
    logits = torch.empty(1, heads.shape[1], device=bench.device)
    state = States(torch.randn(1, heads.shape[2], device=bench.device), None)
    norm = bench.weights.predictor.norm
    bench.note_kernel(
        f"norm + head, {label}",
        lambda: [project(plan, state, head, logits, norm, 1e-6) for head in heads],
        len(heads),
        heads[0].nbytes,
    )


def line_table(bench: Bench, plan: Plan, contexts: tuple[int, ...], seq_groups: int) -> None:
    """Rows for a talker step at each context, and for the predictor's passes of a frame."""
    for context in contexts:
        window = 256 if context <= 250 else 2048
        slots = bench.slots(1, context, window)

        def back(slots: Any = slots, context: int = context) -> None:
            slots.state.positions.fill_(context)

        def step(slots: Any = slots, window: int = window) -> None:
            fused.step_talker(bench.weights, slots, window, plan)

        note_kernels(bench, f"talker step at {context}", OF_TALKER, step, back)
    slots = bench.slots(1, 100, 256)
    what = f"predictor, S={seq_groups}"
    note_kernels(
        bench, what, OF_PREDICTOR, lambda: fused.predict(bench.weights, slots, seq_groups, plan), lambda: None
    )
    logits = 3 * torch.randn(1, slots.codebook, device=bench.device)
    ms, _ = bench.measure(
        lambda: [fused._draw(bench.weights, slots, plan, logits, group, group + 1) for group in range(8)]
    )
    bench.note("kernel", "draw of random logits", us=1000 * ms / 8)


def note_kernels(
    bench: Bench, what: str, kernels: tuple[Any, ...], action: Callable[[], Any], before: Callable[[], Any]
) -> None:
    """A row for each kernel of an action: us a launch alone, and us that the action takes longer for each launch."""
    whole, _ = bench.measure(action, before)
    for kernel in kernels:
        alone, count = measure_some(bench, lambda one, kernel=kernel: one is kernel, action, before)
        others, _ = measure_some(bench, lambda one, kernel=kernel: one is not kernel, action, before)
        name = kernel.fn.__name__
        chain = 1000 * (whole - others) / count
        bench.note("kernel", f"{name}, {what}", launches=count, us=1000 * alone / count, chain_us=chain)


def measure_some(
    bench: Bench, wanted: Callable[[Any], bool], action: Callable[[], Any], before: Callable[[], Any]
) -> tuple[float, int]:
    """Milliseconds of an action that launches only some of its kernels, and how many launches those are."""
    count = 0

    def launch_some(kernel: Any, *arguments: Any, **named: Any) -> None:
        nonlocal count
        if wanted(kernel):
            count += 1
            launch(kernel, *arguments, **named)

    with mock.patch.object(passes, "launch", launch_some), mock.patch.object(fused, "launch", launch_some):
        before()
        action()
        launches, count = count, 0
        ms, _ = bench.measure(action, before)
    return ms, launches

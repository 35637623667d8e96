"""What each kernel of one line costs: replayed alone, and in its chain, measured by leaving it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from operator import is_, is_not
from typing import Any

import torch
from qwen3_tts_morph.morph.kernels import frame as fused
from qwen3_tts_morph.morph.kernels.attention.one_line import attend_line, attend_o_proj, combine_o_proj
from qwen3_tts_morph.morph.kernels.embed import embed_frame
from qwen3_tts_morph.morph.kernels.linear.gemv import gemv
from qwen3_tts_morph.morph.kernels.linear.launch import project
from qwen3_tts_morph.morph.kernels.linear.projection import Projection
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.kernels.precompile import run
from qwen3_tts_morph.morph.kernels.sampling import sample_codes, sample_first
from qwen3_tts_morph.morph.kernels.states import Inputs, Residual

from .bench import Bench, call_each
from .random_weights import unquantized

OF_TALKER = (attend_line, combine_o_proj, gemv, embed_frame, sample_first)
OF_PREDICTOR = (attend_o_proj, gemv, sample_codes)


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


def line_table(bench: Bench, contexts: tuple[int, ...], seq_groups: int) -> None:
    """Measure the kernels of a talker step at each context, and of a frame's predictor passes."""
    for context in contexts:
        window = 256 if context <= 250 else 2048
        slots = bench.slots(1, context, window)

        def rewind(slots: Any = slots, context: int = context) -> None:
            slots.state.positions.fill_(context)

        def step(plan: Plan, slots: Any = slots, window: int = window) -> None:
            fused.step_talker(bench.weights, slots, window, plan)

        Chain(bench, step, rewind).note(f"talker step at {context}", OF_TALKER)
    slots = bench.slots(1, 100, 256)

    def predict(plan: Plan) -> None:
        fused.predict(bench.weights, slots, seq_groups, plan)

    Chain(bench, predict, lambda: None).note(f"predictor, S={seq_groups}", OF_PREDICTOR)
    logits = 3 * torch.randn(1, slots.codebook, device=bench.device)

    def sample() -> None:
        for group in range(8):
            fused.sample(slots, bench.plan, logits, (group, group + 1))

    ms, _ = bench.measure(sample)
    bench.note("kernel", "sampling from random logits", us=1000 * ms / 8)


@dataclass(frozen=True)
class Chain:
    """A chain of kernels: what launches it under a plan, and what resets its buffers before a measurement."""

    bench: Bench
    action: Callable[[Plan], Any]
    before: Callable[[], Any]

    def note(self, what: str, kernels: tuple[Any, ...]) -> None:
        """Record a row per kernel: us per launch alone, and us per launch that the chain takes longer with it."""
        complete, _ = self.bench.measure(lambda: self.action(self.bench.plan), self.before)
        for kernel in kernels:
            alone, count = self._measure_some(partial(is_, kernel))
            others, _ = self._measure_some(partial(is_not, kernel))
            chain = 1000 * (complete - others) / count
            name = f"{kernel.fn.__name__}, {what}"
            self.bench.note("kernel", name, launches=count, us=1000 * alone / count, chain_us=chain)

    def _measure_some(self, wanted: Callable[[Any], bool]) -> tuple[float, int]:
        """Return milliseconds of the chain with only some of its kernels, and how many launches those are."""
        count = 0

        def start_some(kernel: Any, *arguments: Any, **named: Any) -> None:
            nonlocal count
            if wanted(kernel):
                count += 1
                run(kernel, *arguments, **named)

        plan = replace(self.bench.plan, start=start_some)
        self.before()
        self.action(plan)
        launches = count
        ms, _ = self.bench.measure(lambda: self.action(plan), self.before)
        return ms, launches

"""Tables of the fused kernels: their errors, each kernel alone, complete passes and frames.

    python -m lab.benchmarks.kernels --out kernels.json

Uses full-size random weights generated in place, no checkpoint. "check" compares predictor passes and a talker step
with float32, next to torch's own bf16; in float32, the codes of complete frames with those of the torch operations; and
replays with and without dependent launch. If a check fails, everything else is still measured, and the command's exit
status says so.
"kernel" replays one kernel over all layers from a CUDA graph: us each, and the bytes of its weights over that time.
"pass" and "frame" replay a pass or a frame.
Every figure is the median of the repeats, in ms unless another unit is named. Without CUDA the command runs in Triton's
interpreter (TRITON_INTERPRET=1, --shape tiny): a trial of the command, not a measurement.
"""

from __future__ import annotations

import argparse
import copy
import sys
from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from qwen3_tts_morph.morph.frame.buffers import Buffers
from qwen3_tts_morph.morph.frame.step import decode_frame as torch_frame
from qwen3_tts_morph.morph.kernels import frame as fused
from qwen3_tts_morph.morph.kernels.embed import look_up
from qwen3_tts_morph.morph.kernels.frame import run_layers
from qwen3_tts_morph.morph.kernels.linear.tiles import MAX_FOLDED_ROWS
from qwen3_tts_morph.morph.kernels.states import CacheSpan, Inputs, Residual
from qwen3_tts_morph.morph.model.layers import TORCH_OPS, LayerPass, LayerStack
from qwen3_tts_morph.morph.model.layers import run_layers as torch_layers
from qwen3_tts_morph.morph.model.static_cache import SpanView, StaticCache, StepView

from .batch_kernels import batch_table
from .bench import Bench, measure_shapes, parser
from .line_kernels import kernel_table

PREDICTOR_START = 8
BATCH_SEQ_GROUPS = 2  # batches are measured at the first two values of --seq-groups


def widened(value: Any) -> Any:
    """Return the same weights or buffers in float32."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value.clone()
    if isinstance(value, tuple):
        return tuple(widened(one) for one in value)
    if hasattr(value, "__dataclass_fields__"):
        return replace(value, **{field.name: widened(getattr(value, field.name)) for field in fields(value)})
    return value


def relative(value: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the relative error of a tensor."""
    return float((value.float() - wanted).norm() / wanted.norm())


def check_passes(bench: Bench, batch: int) -> None:
    """Compare predictor passes and a talker step with float32: the kernels' errors, and torch's own in bf16."""
    wide, slots = widened(bench.weights), bench.slots(batch, 150, 256)
    slots.frame_cache.keys.normal_()
    slots.frame_cache.values.normal_()
    for what, start, length in (("first pass", 0, 2), ("later pass", PREDICTOR_START, 1)):
        span = CacheSpan(slots.frame_cache, slots.frame_angles, length, start + length, start)
        check_pass(bench, f"{what}, batch {batch}", (bench.weights.predictor, wide.predictor), span, batch)
    span = CacheSpan(slots.cache, slots.angles, 1, 256, positions=slots.state.positions)
    check_pass(bench, f"talker step, batch {batch}", (bench.weights.talker, wide.talker), span, batch)


def torch_states(decoder: LayerStack, span: CacheSpan, states: torch.Tensor) -> torch.Tensor:
    """Return the last position's normed states ``[B, H]`` of a pass in torch operations, in the dtype of ``states``."""
    cache = StaticCache(span.cache.keys.to(states.dtype).clone(), span.cache.values.to(states.dtype).clone())
    if span.positions is None:
        end = span.start + span.length
        view: SpanView | StepView = SpanView(cache, span.start, end)
        angles = span.angles.span(span.start, end)
    else:
        view, angles = StepView(cache, span.positions), span.angles.at(span.positions)
    attend = partial(TORCH_OPS.attend, decoder, LayerPass(angles, decoder.head_norms(), view))
    return torch_layers(decoder, states, attend)[:, -1]


def check_pass(bench: Bench, what: str, stacks: tuple[LayerStack, LayerStack], span: CacheSpan, batch: int) -> None:
    """Fail if the kernels' error against float32 exceeds twice that of torch's bf16.

    ``stacks`` are the weights in bf16 and in float32.
    """
    decoder, exact = stacks
    inputs = torch.randn(batch, span.length, len(decoder.norm), device=bench.device).to(torch.bfloat16)
    wanted = torch_states(exact, span, inputs.float())
    own = relative(torch_states(decoder, span, inputs), wanted)
    residual = run_layers(decoder, bench.plan, Inputs(inputs.flatten(0, 1)), span)
    values = residual.last(span.length, bench.plan).values
    ours = torch.nn.functional.rms_norm(values, values.shape[-1:], decoder.norm.float(), decoder.eps)
    error = relative(ours, wanted)
    bench.note("check", what, kernels_error=error, torch_bf16_error=own)
    bench.require(error < 2 * own, f"{what}: the kernels' error is {error}, torch's bf16 has {own}")


def check_codes(bench: Bench, batch: int, frames: int, seq_groups: int) -> None:
    """Check that in float32 the codes of frames equal those of the torch operations."""
    weights = widened(bench.weights)
    slots = bench.slots(batch, 100, 256, weights)
    other = copy.deepcopy(slots)
    equal = 0
    for _ in range(frames):
        torch_frame(weights, slots, seq_groups, 256)
        fused.decode_frame(weights, other, seq_groups, 256, bench.plan)
        equal += int((slots.state.report == other.state.report).all())
    error = relative(other.state.hidden, slots.state.hidden)
    what = f"float32 codes, batch {batch}, S={seq_groups}"
    bench.note("check", what, frames=frames, equal_frames=equal, state_error=error)
    bench.require(equal == frames, f"{what}: they differ from those of the torch operations")


def check_replays(bench: Bench, batch: int, seq_groups: int, frames: int = 30) -> None:
    """Check for races: frames replayed from a graph are identical with and without dependent launch."""
    before = bench.slots(batch, 100, 256)
    reports: list[list[torch.Tensor]] = []
    for pdl in (True, False):
        slots, seen = copy.deepcopy(before), []
        plan = replace(bench.plan, pdl=pdl)
        fused.decode_frame(bench.weights, slots, seq_groups, 256, plan)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            fused.decode_frame(bench.weights, slots, seq_groups, 256, plan)
        for _ in range(frames):
            graph.replay()
            seen.append(slots.state.report.clone())
        reports.append(seen)
    equal = sum(int(torch.equal(one, other)) for one, other in zip(*reports, strict=True))
    what = f"replays with and without dependent launch, batch {batch}, S={seq_groups}"
    bench.note("check", what, frames=frames, equal_frames=equal)
    bench.require(equal == frames, f"{what}: they differ")


def pass_table(bench: Bench, batch: int = 1, contexts: tuple[int, ...] = (200, 2000)) -> None:
    """Measure a predictor pass, a head with its sampling, and talker steps."""
    plan = bench.plan
    slots = bench.slots(batch, 200, 256)
    decoder = bench.weights.predictor
    inputs = Inputs(bench.weights.tables[0][:, : len(decoder.norm)].contiguous(), slots.state.report[:, 1])
    span = CacheSpan(slots.frame_cache, slots.frame_angles, 1, PREDICTOR_START + 1, PREDICTOR_START)
    ms, ready = bench.measure(lambda: run_layers(decoder, plan, inputs, span))
    bench.note("pass", f"predictor pass, batch {batch}", ms=ms, first_s=ready)
    residual = Residual(torch.randn(batch, len(decoder.norm), device=bench.device), None)
    if batch > plan.gemv_max_rows:
        residual = look_up(plan, inputs, decoder.norm, decoder.eps)
    ms, _ = bench.measure(lambda: fused.sample_heads(bench.weights, slots, plan, residual, (0, 1)))
    bench.note("pass", f"head and sampling, batch {batch}", ms=ms)
    for context in contexts:
        window = 256 if context <= 250 else 2048
        slots = bench.slots(batch, context, window)
        ms, ready = bench.measure(
            partial(fused.step_talker, bench.weights, slots, window, plan),
            partial(slots.state.positions.fill_, context),
        )
        bench.note("pass", f"talker step at {context}, batch {batch}", ms=ms, first_s=ready)


def frame_table(bench: Bench, seq_groups: list[int], batches: list[int]) -> None:
    """Measure complete frames at 100 to 200 positions; at batch 1 the torch operations, too."""
    for batch in batches:
        for groups in seq_groups if batch == 1 else seq_groups[:BATCH_SEQ_GROUPS]:
            slots = bench.slots(batch, 100, 256)

            def rewind(slots: Buffers = slots) -> None:
                slots.state.positions.fill_(100)

            ms, ready = bench.measure(
                partial(fused.decode_frame, bench.weights, slots, groups, 256, bench.plan),
                rewind,
            )
            speed = 80.0 * batch / ms
            bench.note("frame", f"S={groups}, batch {batch}", ms=ms, audio_s_per_s=speed, first_s=ready)
    if bench.device.type == "cuda":
        slots = bench.slots(1, 100, 256)
        ms, _ = bench.measure(
            lambda: torch_frame(bench.weights, slots, 15, 256), lambda: slots.state.positions.fill_(100)
        )
        bench.note("frame", "S=15, batch 1, torch operations", ms=ms)


@torch.inference_mode()
def run(bench: Bench, options: argparse.Namespace) -> None:
    on_cuda = bench.device.type == "cuda"
    for batch in options.check_batches:
        check_passes(bench, batch)
    for batch, seq_groups in ((1, 15), (1, 5), (4, 5)) if on_cuda else ((1, 2),):
        check_codes(bench, batch, 3 if on_cuda else 1, seq_groups)
    if bench.plan.pdl:
        check_replays(bench, 1, 15)
        for batch in sorted({16, *options.batch}):
            if batch > 1:  # folds, split-K, held weights
                check_replays(bench, batch, 5 if batch <= 32 else 2)
    frame_table(bench, options.seq_groups, options.batch)
    kernel_table(bench)
    contexts = (200, 2000) if on_cuda else (40,)
    pass_table(bench, contexts=contexts)
    for batch in options.batch:
        if batch > bench.plan.gemv_max_rows:
            pass_table(bench, batch, contexts if batch <= MAX_FOLDED_ROWS else contexts[:1])
            batch_table(bench, batch)


def main() -> int:
    table = parser(__doc__, repeats=9)
    table.add_argument("--batch", nargs="+", type=int, default=[1, 4, 16, 64])
    table.add_argument("--seq-groups", nargs="+", type=int, default=[15, 5, 7, 3, 1])
    table.add_argument("--check-batches", nargs="+", type=int, default=[1, 2, 4, 16, 64])
    return measure_shapes(table.parse_args(), run)


if __name__ == "__main__":
    sys.exit(main())

"""Tables of the fused kernels: their errors, each kernel alone, whole passes and frames, and what other plans give.

    python -m lab.benchmarks.kernels --out kernels.json

Full-size random weights made in place, no checkpoint. "check" compares predictor passes and a talker step with
float32, beside torch's own bf16; in float32 the codes of whole frames with those of the torch operations; and replays
with and without dependent launch. What fails is measured all the same, and the command's status says so.
"kernel" replays one kernel over all layers from a CUDA graph: us each, and the bytes of its weights over that time;
for one line also what leaving a kernel out of its chain saves, us a launch.
"pass" and "frame" replay one; "plan" does so with one size of the plan changed, after all tables (``--plans`` asks for
one of them and no table).
Every figure is the median of the repeats, ms unless said otherwise. Without CUDA it runs in Triton's interpreter
(TRITON_INTERPRET=1, --shape tiny): a trial of the command, no measurement.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from qwen3_tts_morph.morph.frame.buffers import Buffers
from qwen3_tts_morph.morph.frame.step import decode_frame as torch_frame
from qwen3_tts_morph.morph.frame.weights import Weights
from qwen3_tts_morph.morph.kernels import frame as fused
from qwen3_tts_morph.morph.kernels.layer import look_up, run_layers
from qwen3_tts_morph.morph.kernels.plan import MOST_FOLDED, Plan
from qwen3_tts_morph.morph.kernels.states import Inputs, Place, States
from qwen3_tts_morph.morph.model.layers import LayerStack
from qwen3_tts_morph.morph.model.layers import run_layers as torch_layers
from qwen3_tts_morph.morph.model.static_cache import SpanView, StaticCache, StepView
from qwen3_tts_morph.morph.options import Sampling, TokenSampling
from triton.runtime.errors import TritonError

from .batch_kernels import many_table
from .kernel_plans import FEW_VARIANTS, VARIANTS, WIDE_VARIANTS
from .line_kernels import kernel_table, line_table
from .random_weights import SHAPES, random_slots, random_weights
from .results import installed_versions, machine_name

SAMPLING = Sampling(TokenSampling(), TokenSampling(), 1.05)
PREDICTOR_START = 8
BATCH_SEQ_GROUPS = 2  # batches are measured at the first two of --seq-groups


class Bench:
    """One shape's weights, the rows found so far, and a clock."""

    def __init__(self, shape: str, device: torch.device, repeats: int):
        torch.manual_seed(0)
        self.name, self.shape, self.device, self.repeats = shape, SHAPES[shape], device, repeats
        self.plan = Plan.of(device)
        self.weights = random_weights(self.shape, device, torch.bfloat16)
        self.rows: list[dict[str, Any]] = []
        self.failures: list[str] = []

    def require(self, held: bool, what: str) -> None:
        """Remember a check that failed: the rest is measured all the same."""
        if not held:
            self.failures.append(f"{self.name}: {what}")
            print(f"FAILED  {self.name:5} {what}", flush=True)

    def note(self, table: str, what: str, **numbers: Any) -> None:
        """Keep a row and print it."""
        self.rows.append({"table": table, "model": self.name, "what": what, **numbers})
        shown = "  ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in numbers.items()
        )
        print(f"{table:7} {self.name:5} {what:44} {shown}", flush=True)

    def note_kernel(self, what: str, action: Callable[[], Any], times: int, size: int) -> None:
        """Keep a row for a kernel that an action launches so often: us each, and its bytes over that time."""
        us = 1000 * self.measure(action)[0] / times
        self.note("kernel", what, us=us, mb=size / 1e6, gb_s=size / us / 1000)

    def slots(self, batch: int, position: int, window: int, weights: Weights | None = None) -> Buffers:
        """Lines in the midst of their work."""
        weights = weights or self.weights
        return random_slots(self.shape, weights, batch, window, [position] * batch, SAMPLING)

    def measure(
        self, action: Callable[[], Any], before: Callable[[], Any] | None = None
    ) -> tuple[float, float]:
        """Milliseconds of an action replayed from a CUDA graph, and seconds until it could be replayed."""
        started = time.perf_counter()
        action()
        if self.device.type != "cuda":
            return 1000 * (time.perf_counter() - started), 0.0
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            action()
        ready = time.perf_counter() - started
        for _ in range(5):
            graph.replay()
        times = []
        for _ in range(self.repeats):
            if before is not None:
                before()
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            for _ in range(10):
                graph.replay()
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last) / 10)
        return statistics.median(times), ready


def widened(value: Any) -> Any:
    """The same weights or slots in float32."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value.clone()
    if isinstance(value, tuple):
        return tuple(widened(one) for one in value)
    if hasattr(value, "__dataclass_fields__"):
        return replace(value, **{field.name: widened(getattr(value, field.name)) for field in fields(value)})
    return value


def relative(value: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((value.float() - wanted).norm() / wanted.norm())


def check_states(bench: Bench, batch: int) -> None:
    """Errors of predictor passes and of a talker step against float32, the kernels' and torch's own in bf16."""
    wide, slots = widened(bench.weights), bench.slots(batch, 150, 256)
    slots.frame_cache.keys.normal_()
    slots.frame_cache.values.normal_()
    for what, start, length in (("first pass", 0, 2), ("later pass", PREDICTOR_START, 1)):
        place = Place(slots.frame_cache, slots.frame_angles, length, start + length, start)
        check_pass(bench, f"{what}, batch {batch}", bench.weights.predictor, wide.predictor, place, batch)
    place = Place(slots.cache, slots.angles, 1, 256, positions=slots.state.positions)
    check_pass(bench, f"talker step, batch {batch}", bench.weights.talker, wide.talker, place, batch)


def torch_states(decoder: LayerStack, place: Place, states: torch.Tensor) -> torch.Tensor:
    """The last position's normed states ``[B, H]`` of a pass in torch operations; the cache's dtype follows theirs."""
    cache = StaticCache(
        place.cache.keys.to(states.dtype).clone(), place.cache.values.to(states.dtype).clone()
    )
    if place.positions is None:
        end = place.start + place.length
        view: SpanView | StepView = SpanView(cache, place.start, end)
        angles = place.angles.span(place.start, end)
    else:
        view, angles = StepView(cache, place.positions), place.angles.at(place.positions)
    return torch_layers(decoder, states, angles, decoder.head_norms(), view)[:, -1]


def check_pass(
    bench: Bench, what: str, decoder: LayerStack, exact: LayerStack, place: Place, batch: int
) -> None:
    """Fail when the kernels are further from float32 than twice what torch's bf16 is."""
    inputs = torch.randn(batch, place.length, len(decoder.norm), device=bench.device).to(torch.bfloat16)
    wanted = torch_states(exact, place, inputs.float())
    own = relative(torch_states(decoder, place, inputs), wanted)
    states = run_layers(decoder, bench.plan, Inputs(inputs.flatten(0, 1)), place)
    states = states.last(place.length, bench.plan).wide
    ours = torch.nn.functional.rms_norm(states, states.shape[-1:], decoder.norm.float(), decoder.eps)
    error = relative(ours, wanted)
    bench.note("check", what, kernels_error=error, torch_bf16_error=own)
    bench.require(error < 2 * own, f"{what}: the kernels are off by {error}, torch's bf16 by {own}")


def check_codes(bench: Bench, batch: int, frames: int, seq_groups: int) -> None:
    """In float32 the frames' codes are those of the torch operations."""
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
    """Frames replayed from a graph are the same, bit for bit, with and without dependent launch: no race."""
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


def pass_table(
    bench: Bench, plan: Plan, label: str, batch: int = 1, contexts: tuple[int, ...] = (200, 2000)
) -> None:
    """A predictor pass, a head with its draw, and talker steps."""
    table = "pass" if label == "plan as it is" else "plan"
    slots = bench.slots(batch, 200, 256)
    decoder = bench.weights.predictor
    inputs = Inputs(bench.weights.tables[0][:, : len(decoder.norm)].contiguous(), slots.state.report[:, 1])
    place = Place(slots.frame_cache, slots.frame_angles, 1, PREDICTOR_START + 1, PREDICTOR_START)
    ms, ready = bench.measure(lambda: run_layers(decoder, plan, inputs, place))
    bench.note(table, f"predictor pass, batch {batch}, {label}", ms=ms, first_s=ready)
    states = States(torch.randn(batch, len(decoder.norm), device=bench.device), None)
    if batch > plan.few:
        states = look_up(plan, inputs, decoder.norm)
    ms, _ = bench.measure(lambda: fused._draw_groups(bench.weights, slots, plan, states, 0, 1))
    bench.note(table, f"head and draw, batch {batch}, {label}", ms=ms)
    for context in contexts:
        window = 256 if context <= 250 else 2048
        slots = bench.slots(batch, context, window)
        ms, ready = bench.measure(
            lambda slots=slots, window=window: fused.step_talker(bench.weights, slots, window, plan),
            lambda slots=slots, context=context: slots.state.positions.fill_(context),
        )
        bench.note(table, f"talker step at {context}, batch {batch}, {label}", ms=ms, first_s=ready)


def frame_table(bench: Bench, seq_groups: list[int], batches: list[int]) -> None:
    """Whole frames at 100 to 200 positions; at batch 1 the torch operations beside them."""
    for batch in batches:
        for groups in seq_groups if batch == 1 else seq_groups[:BATCH_SEQ_GROUPS]:
            slots = bench.slots(batch, 100, 256)

            def again(slots: Buffers = slots) -> None:
                slots.state.positions.fill_(100)

            ms, ready = bench.measure(
                lambda slots=slots, groups=groups: fused.decode_frame(
                    bench.weights, slots, groups, 256, bench.plan
                ),
                again,
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
    """All tables of one shape."""
    on_cuda = bench.device.type == "cuda"
    for batch in options.check_batches:
        check_states(bench, batch)
    for batch, seq_groups in ((1, 15), (1, 5), (4, 5)) if on_cuda else ((1, 2),):
        check_codes(bench, batch, 3 if on_cuda else 1, seq_groups)
    if bench.plan.pdl:
        check_replays(bench, 1, 15)
        for batch in sorted({16, *options.batch}):
            if batch > 1:  # folds, products in parts, held weights
                check_replays(bench, batch, 5 if batch <= 32 else 2)
    frame_table(bench, options.seq_groups, options.batch)
    kernel_table(bench, bench.plan, "plan as it is")
    if bench.plan.pdl:
        kernel_table(bench, replace(bench.plan, pdl=False), "no dependent launch")
    contexts = (200, 2000) if on_cuda else (40,)
    line_table(bench, bench.plan, contexts, 15 if on_cuda else 2)
    pass_table(bench, bench.plan, "plan as it is", contexts=contexts)
    for batch in options.batch:
        if batch > bench.plan.few:
            batch_tables(bench, batch, contexts)


def batch_tables(bench: Bench, batch: int, contexts: tuple[int, ...]) -> None:
    """The passes of a batch and each of its kernels, with the kinds of products that it could have."""
    plan = bench.plan
    pass_table(bench, plan, "plan as it is", batch, contexts if batch <= MOST_FOLDED else contexts[:1])
    many_table(bench, plan, "plan as it is", batch)
    if batch > MOST_FOLDED:
        many_table(bench, replace(plan, wide_parts=1), "one part", batch)
    elif plan.wide_held:
        many_table(bench, replace(plan, wide_folds=0), "not folded", batch)
    if plan.wide_held:
        many_table(bench, replace(plan, wide_held=False), "not held", batch)


@torch.inference_mode()
def run_plans(bench: Bench, options: argparse.Namespace) -> None:
    """Other plans, of which one may end the process: after all tables."""
    contexts = (200,) if bench.device.type == "cuda" else (40,)
    kinds: list[tuple[dict[str, dict[str, Any]], int]] = [(VARIANTS, 1)]
    batches = [batch for batch in sorted(options.batch) if batch > bench.plan.few]
    kinds += [(FEW_VARIANTS, batch) for batch in batches if batch <= MOST_FOLDED]
    kinds += [(WIDE_VARIANTS, batch) for batch in batches[-1:] if batch > MOST_FOLDED]
    for variants, batch in kinds:
        chosen = {label: one for label, one in variants.items() if options.plans in (None, label)}
        long = (2000,) if variants is FEW_VARIANTS and bench.device.type == "cuda" else ()
        try_plans(bench, chosen, batch, contexts + long)


def try_plans(
    bench: Bench, variants: dict[str, dict[str, Any]], batch: int, contexts: tuple[int, ...]
) -> None:
    """The passes with one size of the plan changed; a plan that does not fit the GPU is noted as such.

    A fault on the device leaves the process without it: the plan is named, and the command ends.
    """
    for label, changes in variants.items():
        try:
            pass_table(bench, replace(bench.plan, **changes), label, batch, contexts)
        except (TritonError, RuntimeError) as error:
            bench.note("plan", f"batch {batch}, {label}", error=str(error).splitlines()[0])
            if not isinstance(error, TritonError):
                bench.failures.append(f"{bench.name}: batch {batch}, {label}: {error}")
                raise


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", nargs="+", default=["0.6B", "1.7B"], choices=sorted(SHAPES))
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--seq-groups", nargs="+", type=int, default=[15, 5, 7, 3, 1])
    parser.add_argument("--check-batches", nargs="+", type=int, default=[1, 2, 4, 16, 64])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument(
        "--variants", nargs="*", default=["0.6B"], help="shapes for which other plans are tried"
    )
    parser.add_argument(
        "--plans", choices=[*VARIANTS, *FEW_VARIANTS, *WIDE_VARIANTS], help="this other plan and no table"
    )
    parser.add_argument("--out", type=Path, help="where to write the rows as JSON")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows: list[dict[str, Any]] = []
    failures: list[str] = []
    started = time.perf_counter()
    steps = [(run, shape) for shape in options.shape if options.plans is None]
    steps += [(run_plans, shape) for shape in options.shape if shape in options.variants]
    for step, shape in steps:
        bench = Bench(shape, device, options.repeats)
        try:
            step(bench, options)
        finally:
            rows += bench.rows
            failures += bench.failures
            if options.out is not None:
                result = {
                    "machine": machine_name(device),
                    "versions": installed_versions(),
                    "failures": failures,
                    "rows": rows,
                }
                options.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(f"{time.perf_counter() - started:.0f} s in all; {len(failures)} checks failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

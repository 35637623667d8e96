"""Measure the cost of the alignment head: frames and prompts with and without it, alternating.

    python -m lab.benchmarks.alignment --out alignment.json

Uses full-size random weights generated in place, no checkpoint; the heads are those of the published checkpoints. Two
graphs of the same frame are replayed in turn, so that a GPU that slows down slows both. A row has the medians in ms,
and the median of the differences between neighbours in us and in percent of a frame. "check" compares codes with and
without the head, and the head's results with torch's operations in float32, and without dependent launch. If a check
fails, everything else is still measured, and the command's exit status says so. Without CUDA the command runs in
Triton's interpreter (TRITON_INTERPRET=1, --shape tiny): a trial of the command, not a measurement.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from qwen3_tts_morph.morph.decode.rows import ALIGNMENT
from qwen3_tts_morph.morph.frame.buffers import Buffers, PrefillBatch
from qwen3_tts_morph.morph.frame.step import decode_frame as torch_frame
from qwen3_tts_morph.morph.frame.weights import Weights
from qwen3_tts_morph.morph.kernels import frame as fused
from qwen3_tts_morph.morph.words.alignment import SCALE
from qwen3_tts_morph.morph.words.head import PUBLISHED_HEADS, AlignmentHead, TalkerShape

from .bench import Bench, measure_shapes, parser
from .kernels import widened

TEXT = (12, 60)  # the first token's position, and the number of tokens
REPLAYS = 10  # of one graph before the other
PROMPT = 64  # positions
TOLERANCE = 2e-3  # of a share, between float32 sums in other orders


@dataclass(frozen=True)
class Work:
    """A measured action: call ``rewind``, then ``run`` with weights."""

    what: str
    run: Callable[[Weights], Any]
    rewind: Callable[[], Any]


def head_of(bench: Bench) -> AlignmentHead:
    """Return the published head of a shape; of another one, some head."""
    talker = bench.shape.talker
    known = PUBLISHED_HEADS.get(TalkerShape(talker.hidden, talker.layers, talker.heads))
    return known or AlignmentHead(1, 0)


def slots_at(bench: Bench, batch: int, position: int, window: int, weights: Weights | None = None) -> Buffers:
    """Return lines in the middle of decoding, whose texts are at TEXT."""
    slots = bench.slots(batch, position, window, weights)
    slots.state.spans.copy_(torch.tensor(TEXT).expand(batch, 2))
    return slots


def frame_work(bench: Bench, batch: int, seq_groups: int, position: int) -> Work:
    """Return a frame of lines at a position."""
    window = 256
    while window < position + 2 * REPLAYS:
        window *= 2
    slots = slots_at(bench, batch, position, window)
    return Work(
        f"frame, S={seq_groups}, batch {batch}, at {position}",
        lambda weights: fused.decode_frame(weights, slots, seq_groups, window, bench.plan),
        partial(slots.state.positions.fill_, position),
    )


def prompt_work(bench: Bench) -> Work:
    """Return the short prompt of a single line."""
    slots = slots_at(bench, 1, PROMPT, 256)
    arrivals = PrefillBatch.allocate(1, PROMPT, slots.state.hidden)
    arrivals.embeds.normal_()
    arrivals.numbers.copy_(torch.tensor([[0, PROMPT - 3, 2, 7, 9, 5, 40]]))
    return Work(
        f"prompt of {PROMPT} positions",
        lambda weights: fused.run_prompt(weights, slots, arrivals, bench.plan),
        lambda: None,
    )


def compare(bench: Bench, work: Work, repeats: int) -> None:
    """Measure work with and without the head in turn, and record the row."""
    ways = (bench.weights, replace(bench.weights, alignment=head_of(bench)))
    replays = [captured(bench, partial(work.run, weights)) for weights in ways]
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(repeats):
        for index in (0, 1) if turn % 2 else (1, 0):
            work.rewind()
            times[index].append(timed(bench, replays[index]))
    without, with_head = (statistics.median(one) for one in times)
    cost = statistics.median(more - less for less, more in zip(*times, strict=True))
    bench.note("ask", work.what, ms_without=without, ms_with=with_head, us=1000 * cost, percent=100 * cost / without)


def captured(bench: Bench, action: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that replays an action from a graph; without CUDA, the action itself."""
    action()
    if bench.device.type != "cuda":
        return action
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        action()
    for _ in range(5):
        graph.replay()
    return graph.replay


def timed(bench: Bench, replay: Callable[[], Any]) -> float:
    """Return the milliseconds of one replay, of REPLAYS in a row."""
    if bench.device.type != "cuda":
        started = time.perf_counter()
        replay()
        return 1000 * (time.perf_counter() - started)
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(REPLAYS):
        replay()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / REPLAYS


def check(bench: Bench, batch: int, seq_groups: int, frames: int) -> None:
    """Check in float32 that codes do not depend on the head, and that its results equal those of torch operations."""
    weights = widened(bench.weights)
    asked = replace(weights, alignment=head_of(bench))
    slots = slots_at(bench, batch, 100, 256, weights)
    plain, other = copy.deepcopy(slots), copy.deepcopy(slots)
    equal, agreed, worst = 0, 0, 0.0
    for _ in range(frames):
        torch_frame(asked, slots, seq_groups, 256)
        fused.decode_frame(weights, plain, seq_groups, 256, bench.plan)
        fused.decode_frame(asked, other, seq_groups, 256, bench.plan)
        equal += int(torch.equal(plain.state.report[:, :ALIGNMENT], other.state.report[:, :ALIGNMENT]))
        agreed += int(torch.equal(slots.state.aligned[:, 0], other.state.aligned[:, 0]))
        worst = max(worst, float((slots.state.aligned - other.state.aligned)[:, 1:].abs().max()) / SCALE)
    what = f"float32, batch {batch}, S={seq_groups}"
    bench.note("check", what, frames=frames, equal_codes=equal, same_tokens=agreed, worst_share=worst)
    bench.require(equal == frames, f"{what}: the codes differ from those without the head")
    bench.require(
        agreed == frames and worst < TOLERANCE,
        f"{what}: the head and torch's operations differ",
    )


def check_replays(bench: Bench, batch: int, seq_groups: int, frames: int = 30) -> None:
    """Check for races: replays with and without dependent launch are equal."""
    asked = replace(bench.weights, alignment=head_of(bench))
    start, results = slots_at(bench, batch, 100, 256), []
    for plan in (bench.plan, replace(bench.plan, pdl=False)):
        slots = copy.deepcopy(start)
        replay = captured(bench, partial(fused.decode_frame, asked, slots, seq_groups, 256, plan))
        reports = []
        for _ in range(frames):
            replay()
            reports.append(slots.state.report.clone())
        results.append(torch.stack(reports))
    what = f"replays with and without dependent launch, batch {batch}, S={seq_groups}"
    bench.note("check", what, frames=frames, equal=bool(torch.equal(*results)))
    bench.require(torch.equal(*results), f"{what}: they differ")


@torch.inference_mode()
def run(bench: Bench, options: argparse.Namespace) -> None:
    on_cuda = bench.device.type == "cuda"
    for batch in options.batch:
        check(bench, batch, 5 if on_cuda else 1, 3 if on_cuda else 1)
        if bench.plan.pdl:
            check_replays(bench, batch, 5)
        for seq_groups in options.seq_groups:
            for position in options.at if batch <= options.longest_batch else options.at[:1]:
                compare(bench, frame_work(bench, batch, seq_groups, position), options.repeats)
    compare(bench, prompt_work(bench), options.repeats)


def main() -> int:
    table = parser(__doc__, repeats=15)
    table.add_argument("--batch", nargs="+", type=int, default=[1, 64])
    table.add_argument("--seq-groups", nargs="+", type=int, default=[15, 5])
    table.add_argument("--at", nargs="+", type=int, default=[100, 1900], help="positions of the frames")
    table.add_argument("--longest-batch", type=int, default=1, help="larger ones are measured at the first position")
    return measure_shapes(table.parse_args(), run)


if __name__ == "__main__":
    sys.exit(main())

"""A clock and a table for the kernel benchmarks: one model shape with random weights, measured in CUDA graphs."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from qwen3_tts_morph.morph.frame.buffers import Buffers
from qwen3_tts_morph.morph.frame.weights import Weights
from qwen3_tts_morph.morph.kernels.plan import Plan
from qwen3_tts_morph.morph.options import Sampling, TokenSampling

from .origin import Origin, find_commit
from .random_weights import SHAPES, random_slots, random_weights
from .results import installed_versions, machine_name

SAMPLING = Sampling(TokenSampling(), TokenSampling(), 1.05)


Item = TypeVar("Item")
Result = TypeVar("Result")


def call_each(action: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call an action with each item; return all results, so that all stay in memory."""
    return [action(item) for item in items]


class Bench:
    """One shape's weights, the rows measured so far, and a clock."""

    def __init__(self, shape: str, device: torch.device, repeats: int):
        torch.manual_seed(0)
        self.name, self.shape, self.device, self.repeats = shape, SHAPES[shape], device, repeats
        self.plan = Plan.of(device)
        self.weights = random_weights(self.shape, device, torch.bfloat16)
        self.rows: list[dict[str, Any]] = []
        self.failures: list[str] = []

    def require(self, passed: bool, what: str) -> None:
        """Record a failed check; the rest is still measured."""
        if not passed:
            self.failures.append(f"{self.name}: {what}")
            print(f"FAILED  {self.name:5} {what}", flush=True)

    def note(self, table: str, what: str, **numbers: Any) -> None:
        """Record a row and print it."""
        self.rows.append({"table": table, "model": self.name, "precision": "bfloat16", "what": what, **numbers})
        shown = "  ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in numbers.items()
        )
        print(f"{table:7} {self.name:5} {what:44} {shown}", flush=True)

    def note_kernel(self, what: str, action: Callable[[], Any], times: int, size: int) -> None:
        """Record a row for a kernel that an action launches ``times`` times: us per launch, and bandwidth."""
        us = 1000 * self.measure(action)[0] / times
        self.note("kernel", what, us=us, mb=size / 1e6, gb_s=size / us / 1000)

    def slots(self, batch: int, position: int, window: int, weights: Weights | None = None) -> Buffers:
        """Return buffers of lines in the middle of decoding, at ``position``."""
        weights = weights or self.weights
        return random_slots(self.shape, weights, batch, window, [position] * batch, SAMPLING)

    def measure(self, action: Callable[[], Any], before: Callable[[], Any] | None = None) -> tuple[float, float]:
        """Return milliseconds per replay of an action from a CUDA graph, and seconds until it was ready to replay."""
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


def parser(doc: str | None, repeats: int) -> argparse.ArgumentParser:
    """Return a parser with the options of ``measure_shapes``."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--shape", nargs="+", default=["0.6B", "1.7B"], choices=sorted(SHAPES))
    made.add_argument("--repeats", type=int, default=repeats)
    made.add_argument("--out", type=Path, help="where to write the rows as JSON")
    made.add_argument("--commit", default=find_commit(), help="of this tree, where it is not a git checkout")
    return made


def measure_shapes(options: argparse.Namespace, run: Callable[[Bench, argparse.Namespace], None]) -> int:
    """Measure each shape, and write all rows after each, even if it fails; return 1 if a check failed."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    origin = asdict(Origin.of(options.commit))
    made: dict[str, list[Any]] = {"rows": [], "failures": []}
    for shape in options.shape:
        bench = Bench(shape, device, options.repeats)
        try:
            run(bench, options)
        finally:
            made["rows"] += [{**row, **origin} for row in bench.rows]
            made["failures"] += bench.failures
            if options.out is not None:
                document = {"machine": machine_name(device), "versions": installed_versions(), **made}
                options.out.write_text(json.dumps(document, indent=1), encoding="utf-8")
            del bench  # its weights, before the next shape's
    print(f"{len(made['failures'])} checks failed")
    return 1 if made["failures"] else 0

"""Table "two_streams": what the codec costs beside the frames, on a CUDA stream of its own and behind them.

    python -m lab.benchmarks.two_streams                       # full-size random weights in bf16 on the GPU
    python -m lab.benchmarks.two_streams --shape tiny --device cpu --lines 2      # a dry run, behind each other only

Per round, 12 frames of ``--lines`` lines are made and as many decoded: as a step of streams ("step"), or as a row of
complete lines ("rows": of the longest length that has no more). "frames" and "codec" are each of them alone, "behind"
both on one stream, "beside" on two, where nothing waits for the other: the most that a second stream can give. Both are
CUDA graphs, as in the engine. Times are medians of ``--repeats`` runs of ROUNDS rounds, in ms per round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from qwen3_tts_morph.morph.codec.forward import synthesise
from qwen3_tts_morph.morph.graph.backend import FrameBackend
from qwen3_tts_morph.morph.model.sdpa import without_cudnn
from qwen3_tts_morph.morph.waveform.engine import LARGEST_ROW, SLABS, BatchCodec
from qwen3_tts_morph.morph.waveform.incremental import STEP_FRAMES, RowStream

from ..random_checkpoint import random_codec
from .bench import Bench
from .results import PartRow, save_rows

ROUNDS = 4
POSITION, WINDOW = 100, 256
WARM_UPS = 2

Work = Callable[[], object]


@dataclass(frozen=True)
class StreamsRow(PartRow):
    """One measurement, of ``batch`` lines: milliseconds per round, and how much of "behind" a second stream saves."""

    seq_groups: int
    frames_ms: float
    codec_ms: float
    behind_ms: float
    beside_ms: float
    saved: float


class Graph:
    """Work as one CUDA graph on a stream of its own; on a CPU, the work itself."""

    def __init__(self, work: Work, device: torch.device):
        self._work, self._graph, self.stream = work, None, None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)
            self.stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(self.stream):
                work()  # compiles
            torch.cuda.synchronize(device)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=self.stream):
                work()

    def run(self, stream: Any = None) -> None:
        """Launch the work on a stream, by default its own."""
        if self._graph is None:
            self._work()
            return
        with torch.cuda.stream(stream or self.stream):
            self._graph.replay()


def frames_work(bench: Bench, lines: int, seq_groups: int) -> Work:
    """Return what makes STEP_FRAMES frames of the lines."""
    slots, backend = bench.slots(lines, POSITION, WINDOW), FrameBackend()
    backend.choose(bench.weights)

    def make() -> None:
        for _ in range(STEP_FRAMES):
            backend.decode(bench.weights, slots, seq_groups, WINDOW)
        slots.state.positions.fill_(POSITION)

    return make


def step_work(batch: BatchCodec, lines: int) -> Work:
    """Return a step of a row of streams, with new frames of every line."""
    weights = batch.look_up()
    row = RowStream(weights, lines, batch.ops)
    row.launch({line: torch.zeros(STEP_FRAMES, len(weights.offsets)).long() for line in range(lines)}).wait()
    return lambda: row._run(lines)


def rows_work(batch: BatchCodec, lines: int) -> Work:
    """Return rows of complete lines with as many frames: one row, of the length that has the most throughput."""
    weights = batch.look_up()
    size = min(LARGEST_ROW, max(batch.sizes[0], lines * STEP_FRAMES))
    size = max(one for one in batch.sizes if one <= size)
    plan = torch.zeros(size, len(weights.offsets) + 1, dtype=torch.int64, device=weights.codebooks.device)
    out = torch.zeros(size * weights.samples_per_frame, device=plan.device)

    def decode() -> None:
        with without_cudnn():
            synthesise(weights, plan, batch.ops, SLABS, out)

    return decode


def timed(launch: Callable[[], None], device: torch.device, repeats: int) -> float:
    """Return the median milliseconds of a round."""
    times = []
    for _ in range(repeats + WARM_UPS):
        began = time.perf_counter()
        for _ in range(ROUNDS):
            launch()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(1000 * (time.perf_counter() - began) / ROUNDS)
    return statistics.median(times[WARM_UPS:])


def measure(frames: Graph, codec: Graph, device: torch.device, repeats: int) -> dict[str, float]:
    """Return the row's times by name."""

    def both(stream: Any) -> None:
        frames.run()
        codec.run(stream)

    times = {
        "frames_ms": timed(frames.run, device, repeats),
        "codec_ms": timed(codec.run, device, repeats),
        "behind_ms": timed(lambda: both(frames.stream), device, repeats),
        "beside_ms": timed(lambda: both(codec.stream), device, repeats),
    }
    times["saved"] = 1 - times["beside_ms"] / times["behind_ms"]
    return {name: round(value, 3) for name, value in times.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print and store the table."""
    table = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    table.add_argument("--shape", default="0.6B")
    table.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    table.add_argument("--lines", type=int, nargs="+", default=(16, 64))
    table.add_argument("--seq-groups", type=int, nargs="+", default=(5, 15))
    table.add_argument("--repeats", type=int, default=10)
    table.add_argument("--out", type=Path, help="folder for the results instead of lab/benchmarks/results")
    options = table.parse_args(arguments)
    device = torch.device(options.device)
    bench = Bench(options.shape, device, options.repeats)
    codec = random_codec(options.shape).to(device)
    codec = codec.to(torch.bfloat16) if device.type == "cuda" else codec
    model: Any = SimpleNamespace(codec=codec, samples_per_frame=codec.get_decode_upsample_rate())
    rows = []
    with torch.inference_mode():
        for lines in options.lines:
            batch = BatchCodec(model)
            for kind, work in (("step", step_work), ("rows", rows_work)):
                decode = Graph(work(batch, lines), device)
                for groups in options.seq_groups:
                    make = Graph(frames_work(bench, lines, groups), device)
                    times = measure(make, decode, device, options.repeats)
                    precision = str(codec.dtype).removeprefix("torch.")
                    rows.append(
                        StreamsRow(
                            "two_streams", "morph", options.shape, kind, precision, lines, groups, **times
                        )
                    )
                    print(f"{kind:5} {lines:3} lines S={groups:2}", times, flush=True)
    print(f"written to {save_rows(rows, device, *([options.out] if options.out else []))}")


if __name__ == "__main__":
    main()

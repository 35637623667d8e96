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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from qwen3_tts_morph.morph.codec.forward import synthesise
from qwen3_tts_morph.morph.codec.packing import CHUNK_FRAMES, Chunk, PackedChunk, write_plan
from qwen3_tts_morph.morph.graph.backend import FrameBackend
from qwen3_tts_morph.morph.model.sdpa import without_cudnn
from qwen3_tts_morph.morph.runtime.capture import CapturedGraphs
from qwen3_tts_morph.morph.waveform.engine import BatchCodec, choose_slabs
from qwen3_tts_morph.morph.waveform.incremental import STEP_FRAMES, RowStream

from ..random_checkpoint import random_codec
from .bench import Bench
from .common import timed_ms
from .origin import add_output
from .results import PartRow, save_rows

ROUNDS = 4
POSITION, WINDOW = 100, 256
WARM_UPS = 2

Work = Callable[[], None]


@dataclass(frozen=True)
class StreamsRow(PartRow):
    """One measurement, of ``batch`` lines: milliseconds per round, and how much of "behind" a second stream saves."""

    seq_groups: int
    frames_ms: float
    codec_ms: float
    behind_ms: float
    beside_ms: float
    saved: float


def captured(work: Work, device: torch.device) -> Work:
    """Return work as a CUDA graph of its own, replayed on the current stream; on a CPU, the work itself.

    Raises:
        RuntimeError: where it cannot be captured.
    """
    graphs = CapturedGraphs(device)
    for _ in range(2):  # the first call is direct, the second captures
        graphs.run("work", work)
    if device.type == "cuda" and graphs.fallback is not None:
        raise RuntimeError(graphs.fallback.describe())
    return lambda: graphs.run("work", work)


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


def full_row(size: int, gap: int, groups: int) -> torch.Tensor:
    """Return the plan of a row that chunks of at most CHUNK_FRAMES fill, int64 ``[size, groups + 1]``, all codes 0."""
    codes = torch.zeros(CHUNK_FRAMES, groups, dtype=torch.int64)
    starts = range(gap, size, gap + CHUNK_FRAMES)
    chunks = [PackedChunk(Chunk(0, 0, 0, min(CHUNK_FRAMES, size - start)), start) for start in starts]
    return write_plan(chunks, [codes], size)


def rows_work(batch: BatchCodec, lines: int) -> Work:
    """Return a row of complete lines, of the longest length that has no more frames than a step of the lines."""
    weights = batch.look_up()
    size = max(one for one in batch.sizes if one <= max(batch.sizes[0], lines * STEP_FRAMES))
    plan = full_row(size, weights.gap, len(weights.offsets)).to(weights.codebooks.device)
    out = torch.zeros(size * weights.samples_per_frame, device=plan.device)

    def decode() -> None:
        with without_cudnn():
            synthesise(weights, plan, batch.ops, choose_slabs(size), out)

    return decode


def median_ms(launch: Work, device: torch.device, repeats: int) -> float:
    """Return the median milliseconds of a round."""

    def rounds() -> None:
        for _ in range(ROUNDS):
            launch()

    times = [timed_ms(rounds, device)[0] / ROUNDS for _ in range(WARM_UPS + repeats)]
    return statistics.median(times[WARM_UPS:])


def measure(frames: Work, codec: Work, device: torch.device, repeats: int) -> dict[str, float]:
    """Return the row's times by name."""
    second = torch.cuda.Stream(device) if device.type == "cuda" else None

    def behind() -> None:
        frames()
        codec()

    def beside() -> None:
        frames()
        with torch.cuda.stream(second):
            codec()

    launches = {"frames_ms": frames, "codec_ms": codec, "behind_ms": behind, "beside_ms": beside}
    times = {name: median_ms(launch, device, repeats) for name, launch in launches.items()}
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
    add_output(table)
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
                decode = captured(work(batch, lines), device)
                for groups in options.seq_groups:
                    make = captured(frames_work(bench, lines, groups), device)
                    times = measure(make, decode, device, options.repeats)
                    precision = str(codec.dtype).removeprefix("torch.")
                    rows.append(
                        StreamsRow(
                            "two_streams", "morph", options.shape, kind, precision, lines, groups, **times
                        )
                    )
                    print(f"{kind:5} {lines:3} lines S={groups:2}", times, flush=True)
    print(f"written to {save_rows(rows, device, options)}")


if __name__ == "__main__":
    main()

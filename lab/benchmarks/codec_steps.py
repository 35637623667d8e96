"""Table "codec_step": what a step of the codec's row of streams takes, by the lines that have frames in it.

    python -m lab.benchmarks.codec_steps                       # full-size random weights in bf16 on the GPU
    python -m lab.benchmarks.codec_steps --shape tiny --device cpu --lines 1 4      # a dry run

A step decodes 12 new frames of each line (``morph/waveform/incremental.py``). Times are from codes on the host to the
samples of the last line on the device: the median of ``--repeats`` after steps that compile and capture.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from qwen3_tts_morph.morph.runtime.capture import CapturedGraphs
from qwen3_tts_morph.morph.waveform.engine import BatchCodec
from qwen3_tts_morph.morph.waveform.incremental import STEP_FRAMES, RowStream

from ..random_checkpoint import SHAPES, random_codec
from .common import FRAME_S, timed_ms
from .origin import add_output
from .results import PartRow, save_rows

LINES = (1, 2, 4, 8, 16, 32, 64)
WARM_UPS = 3


@dataclass(frozen=True)
class StepRow(PartRow):
    """One measurement; ``batch`` is the number of lines."""

    ms: float
    ms_per_line: float
    audio_seconds_per_second: float


def measure(codec: Any, shape: str, lines: int, repeats: int) -> StepRow:
    """Measure steps of this many lines, in a row that has as many."""
    model: Any = SimpleNamespace(codec=codec, samples_per_frame=codec.get_decode_upsample_rate())
    batch = BatchCodec(model)
    weights, device = batch.look_up(), codec.device
    row = RowStream(weights, lines, batch.ops, CapturedGraphs(device) if device.type == "cuda" else None)
    book, groups = len(weights.codebooks) // len(weights.offsets), len(weights.offsets)

    def step() -> float:
        codes = {line: torch.randint(book, (STEP_FRAMES, groups)) for line in range(lines)}
        return timed_ms(lambda: row.launch(codes), device)[0]

    ms = statistics.median([step() for _ in range(WARM_UPS + repeats)][WARM_UPS:])
    precision = str(codec.dtype).removeprefix("torch.")
    heard = lines * STEP_FRAMES * FRAME_S
    return StepRow(
        "codec_step", "morph", shape, "codec", precision, lines, round(ms, 3), round(ms / lines, 4),
        round(1000 * heard / ms, 1),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print and store the table."""
    table = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    table.add_argument("--shape", choices=sorted(SHAPES), default="0.6B")
    table.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    table.add_argument("--lines", type=int, nargs="+", default=LINES)
    table.add_argument("--repeats", type=int, default=15)
    add_output(table)
    options = table.parse_args(arguments)
    device = torch.device(options.device)
    codec = random_codec(options.shape).to(device)
    codec = codec.to(torch.bfloat16) if device.type == "cuda" else codec
    rows = []
    for lines in options.lines:
        rows.append(measure(codec, options.shape, lines, options.repeats))
        one = rows[-1]
        print(
            f"{lines:4} lines {one.ms:9.3f} ms {one.audio_seconds_per_second:9.1f} s of audio per second",
            flush=True,
        )
    path = save_rows(rows, device, options)
    print(f"written to {path}")


if __name__ == "__main__":
    main()

"""Table "prefill": time from prompts to group 0 of their first frames.

    python -m lab.benchmarks.prefill --shape 0.6B --batches 1 4 16 64

``ms`` is until the device has finished, ``host_ms`` until the host can continue. Medians of ``--repeats`` after two
runs that compile and capture.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from qwen3_tts_morph.morph.decode.rows import Guard, LineRequest
from qwen3_tts_morph.morph.graph.backend import FrameBackend
from qwen3_tts_morph.morph.graph.engine import GraphDecoder, on_device
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS, GenerateOptions

from .common import (
    ENGINES,
    check_kernels_ran,
    load_muted,
    make_prompt,
    parser,
    precision_of,
    timed_ms,
    usable_engines,
)
from .results import PartRow, save_rows

BATCHES = (1, 4, 16, 64)
WARM_UPS = 2


@dataclass(frozen=True)
class PrefillRow(PartRow):
    """One measurement: ``batch`` prompts of ``positions`` each. There are no frames and no audio yet."""

    positions: int
    ms: float
    host_ms: float


@torch.inference_mode()
def measure(model: Model, options: argparse.Namespace, name: str, batch: int) -> PrefillRow:
    """Measure one engine at one batch size.

    Raises:
        RuntimeError: kernels were to be measured, but torch operations ran.
    """
    prompt = make_prompt(model)
    engine = GraphDecoder(batch, frames=FrameBackend(name == "kernels"))

    def put() -> float:
        started = time.perf_counter()
        engine.put(range(batch), [LineRequest(prompt, Guard(1), seed) for seed in range(batch)])
        return 1000 * (time.perf_counter() - started)

    with on_device(model.device):
        engine.start(model, GenerateOptions(PREDICTED_GROUPS), len(prompt.embeds) + options.frames)
        times = [timed_ms(put, model.device) for _ in range(WARM_UPS + options.repeats)]
    engine.free()
    check_kernels_ran(name, engine.frames.fallback)
    ms, host_ms = (round(statistics.median(column), 3) for column in zip(*times[WARM_UPS:], strict=True))
    return PrefillRow(
        "prefill", "morph", options.shape, name, precision_of(model), batch, len(prompt.embeds), ms, host_ms
    )


def markdown(rows: Sequence[PrefillRow]) -> str:
    lines = [
        "| engine | precision | lines | positions per line | ms | host ms |",
        "|---|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row.engine} | {row.precision} | {row.batch} | {row.positions} | {row.ms:.2f} | {row.host_ms:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    table = parser(__doc__, frames=125, repeats=5)
    table.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    table.add_argument("--engines", nargs="+", choices=ENGINES[:2], default=ENGINES[:2])
    options = table.parse_args(arguments)
    model = load_muted(options)
    names = usable_engines(options.engines, model)
    rows = [measure(model, options, name, batch) for name in names for batch in options.batches]
    path = save_rows(rows, model.device, options)
    print(f"{model.summary()}, median of {options.repeats}\n\n{markdown(rows)}\n\nwritten to {path}")


if __name__ == "__main__":
    main()

"""Table "line": one line of 10 s end to end, from its text to its waveform.

    python -m lab.benchmarks.line --shape 0.6B --frames 125 --repeats 5

``first_ms`` is the time from the text to the first frame's codes on the host (prompt, prefill, one frame and, on the
graph engine, the frames it runs ahead); ``codec_ms`` is from codes to samples; ms/frame and RTF cover everything.
``first_run_s`` is the process's first line with that engine and SEQ_GROUPS: joining weights, first use of kernels,
captures. Medians of ``--repeats`` runs after that run and another that captures.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import torch
from qwen3_tts_morph.morph.model.model import Model

from .batches import codec_ms
from .common import (
    ENGINES,
    NamedEngine,
    RowSetting,
    decode_fixed,
    keep,
    load_muted,
    make_row,
    parser,
    timed_ms,
    usable_engines,
)
from .results import Row

SEQ_GROUPS = (15, 7, 5, 3, 1)


@torch.inference_mode()
def measure(model: Model, options: argparse.Namespace, name: str, seq_groups: int) -> Row:
    engine, frames = NamedEngine(name), [options.frames]
    runs: list[tuple[float, float, float]] = []
    for _ in range(options.repeats + 2):
        ms, decoded = timed_ms(lambda: decode_fixed(engine, model, frames, seq_groups), model.device)
        first, _ = timed_ms(lambda: decode_fixed(engine, model, [1], seq_groups), model.device)
        runs.append((ms, first, codec_ms(engine, model, decoded)))
    engine.free()
    (first_run, _, first_codec), _, *later = runs  # the second run captures the codec's row
    ms, first, codec = (statistics.median(column) for column in zip(*later, strict=True))
    return make_row(
        RowSetting("line", name, seq_groups), options, model, ms + codec, frames,
        first_ms=first, decode_ms=ms, codec_ms=codec, first_run_s=(first_run + first_codec) / 1000,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    table = parser(__doc__, frames=125, repeats=5)
    table.add_argument("--seq-groups", type=int, nargs="+", default=SEQ_GROUPS)
    table.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    options = table.parse_args(arguments)
    model = load_muted(options)
    rows = [
        measure(model, options, name, groups)
        for name in usable_engines(options.engines, model)
        for groups in options.seq_groups
    ]
    keep(rows, options, model)


if __name__ == "__main__":
    main()

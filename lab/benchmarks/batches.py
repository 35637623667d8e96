"""Table "batches": seconds of audio a second at batch 1 to 128, with and without the codec.

    python -m lab.benchmarks.batches --shape 0.6B --frames 125 --repeats 3

Each run decodes as many lines as the batch has rows, all of ``--frames`` frames, prefill included; the codec then
decodes them as ``render_lines`` does. Table "refill": four times as many lines as rows, of 40 to 200 % of
``--frames``, so that rows are refilled as their lines end; 100 % would be rows that never wait. Medians of
``--repeats`` after two runs that warm up and capture.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Sequence

import torch

from .common import (
    ENGINES,
    Decoded,
    Measured,
    Model,
    decode_fixed,
    keep,
    load_muted,
    make_row,
    parser,
    timed_ms,
    usable_engines,
)
from .results import Row

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
REFILLED = (8, 64)
SEQ_GROUPS = (15, 5)
LINES_A_ROW = 4
WARM_UPS = 2  # a row of the codec is captured when it comes a second time


def unlike_lengths(lines: int, frames: int) -> list[int]:
    """The same lengths in every run, 40 to 200 % of ``frames``, longest first, as ``render_lines`` would order them."""
    draw = random.Random(0)
    return sorted((max(1, round(frames * draw.uniform(0.4, 2.0))) for _ in range(lines)), reverse=True)


@torch.inference_mode()
def codec_ms(engine: Measured, model: Model, decoded: Sequence[Decoded]) -> float:
    """Milliseconds in which the codec makes waveforms of decoded lines, as ``render_lines`` calls it."""
    codes = [one.codes for one in decoded]
    return timed_ms(lambda: engine.decode_waveforms(model, codes, [None] * len(codes)), model.device)[0]


def measure(
    model: Model, options: argparse.Namespace, name: str, seq_groups: int, batch: int, refill: bool
) -> Row:
    """One row, with an engine of its own: its memory is given back before the next."""
    lines = batch * LINES_A_ROW if refill else batch
    frames = unlike_lengths(lines, options.frames) if refill else [options.frames] * lines
    engine, times, codec = Measured(name), [], []
    for repeat in range(options.repeats + WARM_UPS):
        ms, decoded = timed_ms(lambda: decode_fixed(engine, model, frames, seq_groups, batch), model.device)
        both = codec_ms(engine, model, decoded)
        if repeat >= WARM_UPS:
            times.append(ms)
            codec.append(both)
    engine.free()
    ms, spent = statistics.median(times), statistics.median(codec)
    with_codec = sum(frames) * 80.0 / (ms + spent)
    table = "refill" if refill else "batches"
    return make_row(
        table, options, model, name, seq_groups, batch, ms, frames,
        codec_ms=spent, audio_seconds_per_second_with_codec=with_codec,
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print and keep the tables."""
    table = parser(__doc__, frames=125, repeats=3)
    table.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    table.add_argument("--refill", type=int, nargs="*", default=REFILLED, help="batches of the table refill")
    table.add_argument("--seq-groups", type=int, nargs="+", default=SEQ_GROUPS)
    table.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES[:2])
    options = table.parse_args(arguments)
    model = load_muted(options)
    names = usable_engines(options.engines, model)
    for refill, batches in ((False, options.batches), (True, options.refill)):
        rows = [
            measure(model, options, name, groups, batch, refill)
            for name in names
            for groups in options.seq_groups
            for batch in batches
        ]
        if rows:
            keep(rows, options, model)


if __name__ == "__main__":
    main()

"""Table "batches": seconds of audio per second at batch 1 to 128, with and without the codec.

    python -m lab.benchmarks.batches --shape 0.6B --frames 125 --repeats 3

Each run decodes one line of ``--frames`` frames per row of the batch, prefill included; the codec then decodes them as
``render_lines`` does. Table "refill": four times as many lines as rows, with 40 to 200 % of ``--frames`` each, so that
rows are refilled when their lines end; if no row ever waited, it would equal the table "batches". Medians of
``--repeats`` after two runs that warm up and capture.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Sequence

import torch
from qwen3_tts_morph.morph.decode.rows import Decoded
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.waveform.engine import take_all

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

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
REFILLED = (8, 64)
SEQ_GROUPS = (15, 5)
LINES_PER_ROW = 4
WARM_UPS = 2  # the codec captures a row on its second use


def mixed_lengths(lines: int, frames: int) -> list[int]:
    """Return 40 to 200 % of ``frames`` per line, the same in every run, sorted like ``render_lines``: longest first."""
    rng = random.Random(0)
    return sorted((max(1, round(frames * rng.uniform(0.4, 2.0))) for _ in range(lines)), reverse=True)


@torch.inference_mode()
def codec_ms(engine: NamedEngine, model: Model, decoded: Sequence[Decoded]) -> float:
    """Return the milliseconds the codec takes for the waveforms of decoded lines, as ``render_lines`` calls it."""
    codes = [one.codes for one in decoded]
    choice = engine.choose(model)
    none = [None] * len(codes)
    return timed_ms(lambda: take_all(engine.begin_waveforms(model, choice, codes, none)), model.device)[0]


def measure(model: Model, options: argparse.Namespace, setting: RowSetting) -> Row:
    """Measure one row, with a separate engine: its memory is freed before the next row."""
    refill, batch, groups = setting.table == "refill", setting.batch, setting.seq_groups
    lines = batch * LINES_PER_ROW if refill else batch
    frames = mixed_lengths(lines, options.frames) if refill else [options.frames] * lines
    engine, times, codec = NamedEngine(setting.engine), [], []
    for repeat in range(options.repeats + WARM_UPS):
        ms, decoded = timed_ms(lambda: decode_fixed(engine, model, frames, groups, batch), model.device)
        both = codec_ms(engine, model, decoded)
        if repeat >= WARM_UPS:
            times.append(ms)
            codec.append(both)
    engine.free()
    ms, spent = statistics.median(times), statistics.median(codec)
    with_codec = sum(frames) * 80.0 / (ms + spent)
    return make_row(setting, options, model, ms, frames, codec_ms=spent, audio_seconds_per_second_with_codec=with_codec)


def main(arguments: Sequence[str] | None = None) -> None:
    table = parser(__doc__, frames=125, repeats=3)
    table.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    table.add_argument("--refill", type=int, nargs="*", default=REFILLED, help="batch sizes of the table refill")
    table.add_argument("--seq-groups", type=int, nargs="+", default=SEQ_GROUPS)
    table.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES[:2])
    options = table.parse_args(arguments)
    model = load_muted(options)
    engines = usable_engines(options.engines, model)
    for name, batches in (("batches", options.batches), ("refill", options.refill)):
        rows = [
            measure(model, options, RowSetting(name, engine, groups, batch))
            for engine in engines
            for groups in options.seq_groups
            for batch in batches
        ]
        if rows:
            keep(rows, options, model)


if __name__ == "__main__":
    main()

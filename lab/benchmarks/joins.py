"""Table "joins": the latency of a line that is requested shortly after another one.

    python -m lab.benchmarks.joins --shape 0.6B --rows 8 --delays 5 10 20 30 40 80 160
    python -m lab.benchmarks.joins --shape demo --device cpu --repeats 2 --delays 20
    python -m lab.benchmarks.joins --shape tiny --device cpu --simulated     # the share of Python and waiting

A ``Batch``, like the server's, gets a line, and ``delay_ms`` later another one. ``p50_ms``, ``p95_ms`` and ``most_ms``
are from the second request to its first samples, over ``--repeats`` runs; in the first row there is no other line. Both
lines are read to their ends, after ``--frames``. Between two runs the batch is idle for ``--pause`` seconds; after half
a second it releases the model.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.batch.speech import Delivery, Speech
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer
from qwen3_tts_morph.morph.voice.voice import Voice
from qwen3_tts_morph.serve.process.server import SWITCH_S

from .common import TEXT, RowSetting, fixed_length, keep, load_muted, make_row, parser, percentile_ms
from .results import Row, save_rows
from .simulated import Times, add_simulated, check_simulated, simulated
from .stream import VOICES, make_voice

WARM_UPS = 4  # runs of each delay: graphs are captured by the second
SIMULATED = Times(frame=0.0029, talker=0.001)  # of 8 lines at S = 15


@dataclass(frozen=True)
class Case:
    """One row: the milliseconds between two lines, or None for one line, and their common options."""

    delay_ms: float | None
    voice: Voice
    generate: GenerateOptions
    pause_s: float


@dataclass(frozen=True)
class Joined:
    """One run: seconds from a line's request to its first samples, and until all lines have ended."""

    first_s: float
    wall_s: float


def run(service: Batch, case: Case, seed: int) -> Joined:
    """Speak one line, or two one after the other."""
    time.sleep(case.pause_s)
    began = time.perf_counter()
    with ThreadPoolExecutor(1) as reader:
        other = None
        if case.delay_ms is not None:
            other = reader.submit(list, ask(service, case, seed))
            time.sleep(max(0.0, began + case.delay_ms / 1000 - time.perf_counter()))
        asked = time.perf_counter()
        utterance = ask(service, case, seed + 1)
        utterance.take()
        first_s = time.perf_counter() - asked
        for _ in utterance:
            pass
        if other is not None:
            other.result()
    return Joined(first_s, time.perf_counter() - began)


def ask(service: Batch, case: Case, seed: int) -> Speech:
    return service.speak(Line(TEXT, case.voice, "english", seed), case.generate, Delivery(keep=False))


def serving(model: Model, options: argparse.Namespace) -> Batch:
    """Return a batch of this model; with a simulated device, call it inside ``simulated``."""
    engine = Engine("graph" if options.simulated else "auto")
    return Batch(Synthesizer(model, engine), options.rows)


def measure(service: Batch, model: Model, case: Case, options: argparse.Namespace) -> Row:
    runs = [run(service, case, 2 * number) for number in range(WARM_UPS + options.repeats)][WARM_UPS:]
    first_s = [one.first_s for one in runs]
    engine = "simulated" if options.simulated else "auto"
    lines = 1 if case.delay_ms is None else 2
    return make_row(
        RowSetting("joins", engine, case.generate.seq_groups, options.rows), options, model,
        1000 * statistics.median(one.wall_s for one in runs), [options.frames] * lines,
        voice=case.voice.kind, delay_ms=case.delay_ms, repeats=options.repeats, pause_s=case.pause_s,
        p50_ms=percentile_ms(first_s, 50), p95_ms=percentile_ms(first_s, 95), most_ms=percentile_ms(first_s, 100),
    )  # fmt: skip


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    table = parser(__doc__, frames=60, repeats=20)
    table.add_argument("--seq-groups", type=int, nargs="+", default=(15,))
    table.add_argument("--rows", type=int, default=8, help="of the batch (default %(default)s)")
    table.add_argument("--voice", choices=VOICES, default="x_vector")
    table.add_argument("--delays", type=float, nargs="+", default=(5, 10, 20, 30, 40, 80, 160), help="in ms")
    table.add_argument("--pause", type=float, default=0.2, help="seconds between two runs")
    add_simulated(table)
    options = table.parse_args(arguments)
    check_simulated(table, options)
    return options


@contextmanager
def switching_soon() -> Iterator[None]:
    """Switch Python's threads as often as the server does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def measure_all(model: Model, options: argparse.Namespace) -> list[Row]:
    """Measure all cases, and print each row when it is done."""
    voice, rows = make_voice(model, options.voice), list[Row]()
    for groups in options.seq_groups:
        generate = GenerateOptions(groups, fixed_length(model, options.frames), retries=0)
        with simulated(SIMULATED) if options.simulated else nullcontext(), serving(model, options) as service:
            for delay_ms in (None, *options.delays):
                rows.append(measure(service, model, Case(delay_ms, voice, generate, options.pause), options))
                # Immediately: a rented machine may be gone before the next row.
                save_rows(rows, model.device, options)
                shown = {name: rows[-1].details[name] for name in ("delay_ms", "p50_ms", "p95_ms", "most_ms")}
                print(f"S={groups}: {shown}", flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    with switching_soon():
        keep(measure_all(model := load_muted(options), options), options, model)


if __name__ == "__main__":
    main()

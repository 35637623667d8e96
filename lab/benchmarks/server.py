"""Table "server": requests of many clients to the speech server at random times, over HTTP on loopback.

    python -m lab.benchmarks.server --shape demo --device cpu --rates 0.2 --seconds 30 --seq-groups 5
    python -m lab.benchmarks.server --shape 0.6B --rates 1 20 100 --seconds 60 --rows 8 32 64

The server is the command line's, in its own process (``server_process.py``); the client is another one
(``server_client.py``). Requests arrive at random times with ``--rates`` a second on average (exponential gaps), whether
or not earlier ones have been answered: an open loop. Each is for raw PCM of a line of 4 to 8 s. Random checkpoints
never end a line by themselves, so that a line has exactly the frames that its request allows, and an answer with
fewer bytes is lost; the demo voice ends its lines itself.

``p50_ms`` and ``p95_ms``: from before a request is sent to the first byte of its sound at the client;
``audible_p50_ms`` and ``audible_p95_ms``: until a player that starts with it plays the first 10 ms above -50 dBFS, as
others measure it. ``underruns`` are parts of the sound that arrived after such a player had played everything before,
of all lines together, and ``gap_ms`` is the longest single silence that this caused (in rows before 2026-11-26 the
longest sum of a line's silences). ``lost``: requests without their complete sound; ``refused`` are those of them with
429. ``health_p50_ms`` is the latency of ``/health``, which needs no model, under the same load; ``client_late_p95_ms``
is how late the client's own event loop woke up, ``client_late_most_ms`` the latest of these, ``client_underruns`` those
of the underruns that such a pause of the client explains, ``sent_late_p95_ms`` how late it sent its requests. The
memory of the server's process and of its GPU is read before and after. ``late_captures`` are warm-ups after the server
was ready (its log names them), ``collections`` its garbage collections, ``gpu_allocations`` and ``pinned_allocations``
the blocks of memory that torch got from the driver: each may delay all lines. ``--rows``: of the server, one number, or
one for each rate; each starts its own server. Every server first speaks lines that are not counted. ``slowest`` and
``silences`` have the times of the slowest lines and the longest silences, in seconds since the measurement began.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from qwen3_tts_morph.morph.checkpoint.load import choose_dtype
from qwen3_tts_morph.morph.options import FRAME_RATE

import pack

from .common import FRAME_S, parser, percentile_ms
from .results import Row, markdown, save_rows
from .server_client import BYTES_PER_S
from .server_process import VOICE, prepare_checkpoint, read_metrics, serving
from .simulated import add_simulated, check_simulated

TEXTS = (
    "The quick brown fox jumps over the lazy dog, and then it thinks better of it.",
    "We should be there by ten, unless the ferry is late again, as it was on Sunday.",
    "Please leave the parcel with my neighbour, who is at home until the afternoon.",
    "Nobody had told them that the bridge was closed, so they walked along the river.",
    "It rained for three days, and on the fourth the whole valley smelled of wet grass.",
    "If you press the blue button twice, the lamp goes out and the door stays open.",
)
SHORTEST_S, LONGEST_S = 4.0, 8.0
WARM_S = 2.0
SEED = 1
PREFIX = "morph_tts"  # of the server's metrics
SLOWEST = 8  # lines, and silences, whose times a row has
# Shapes whose muted EOS is never sampled; a tiny checkpoint has too few other codes for that.
UNENDING = ("0.6B", "1.7B")


@dataclass(frozen=True)
class Case:
    """One row: a load, and the rows of its server.

    Args:
        rate: requests a second.
        seconds: the duration of the load.
        seq_groups: of every request.
        rows: of the server, None for its default.
        exact: whether a line has all the frames that its request allows.
    """

    rate: float
    seconds: float
    seq_groups: int
    rows: int | None
    exact: bool


def make_requests(case: Case, voice: str | None, seed: int = SEED) -> list[dict[str, Any]]:
    """Return requests with their times, ``{"at": s, "body": {...}}``."""
    made: list[dict[str, Any]] = []
    chance, at = random.Random(seed), 0.0
    while (at := at + chance.expovariate(case.rate)) < case.seconds or not made:
        made.append({"at": at, "body": make_body(case, voice, chance)})
    return made


def make_body(case: Case, voice: str | None, chance: random.Random, longest: float = LONGEST_S) -> dict[str, Any]:
    """Return one request's fields: a line of SHORTEST_S to ``longest`` seconds, in whole frames."""
    frames = round(chance.uniform(min(SHORTEST_S, longest), longest) * FRAME_RATE)
    return {
        "model": "tts-1",
        "voice": voice,
        "input": chance.choice(TEXTS),
        "language": "english",
        "response_format": "pcm",
        "seed": chance.randrange(1 << 32),
        "seq_groups": case.seq_groups,
        "sampling": {"max_seconds": frames / FRAME_RATE},
    }


def warm(address: str, case: Case, voice: str | None) -> None:
    """Speak lines that are not counted: one by one, then twice as many concurrently as rows."""
    chance, rows = random.Random(0), case.rows or 8
    times = [1.0 * number for number in range(3)] + [4.0] * (2 * rows)
    ask(address, [{"at": at, "body": make_body(case, voice, chance, WARM_S)} for at in times])


def ask(address: str, requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Send requests from the client's process; return its ``Answers`` as they are in the file.

    Raises:
        RuntimeError: if it failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan, out = Path(folder, "plan.json"), Path(folder, "answer.json")
        plan.write_text(json.dumps({"address": address, "requests": list(requests)}), encoding="utf-8")
        command = [sys.executable, "-m", "lab.benchmarks.server_client", str(plan), str(out)]
        done = subprocess.run(command, cwd=pack.ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the client failed: {done.stderr[-2000:]}")
        answers: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return answers


def measure(address: str, case: Case, voice: str | None, options: argparse.Namespace) -> Row:
    requests = make_requests(case, voice)
    before = read_metrics(address)
    answers = ask(address, requests)
    after = read_metrics(address)
    lines = answers["lines"]
    if case.exact:
        mark_short(lines, requests)
    for error in sorted({line["error"] for line in lines if line["error"]}):
        print(f"lost: {error}", flush=True)
    audio_s = sum(line["size"] for line in lines) / BYTES_PER_S
    figures = figures_of(answers) | memory_of(before, "begin") | memory_of(after, "end")
    figures |= slow_moments_of(before, after)
    figures["slowest"], figures["silences"] = describe_slowest(lines, requests), describe_silences(lines)
    return make_row(case, options, answers["wall_s"], audio_s, figures)


def mark_short(lines: Sequence[dict[str, Any]], requests: Sequence[Mapping[str, Any]]) -> None:
    """Set the error of answers whose size is not the one that their request allows."""
    for line, request in zip(lines, requests, strict=True):
        wanted = round(request["body"]["sampling"]["max_seconds"] * BYTES_PER_S)
        if not line["error"] and line["size"] != wanted:
            line["error"] = f"{line['size']} bytes instead of {wanted}"


def describe_slowest(lines: Sequence[Mapping[str, Any]], requests: Sequence[Mapping[str, Any]]) -> str:
    """Return the latency of the slowest lines, the time of their request, and the ms since the previous request."""
    times = [request["at"] for request in requests]
    waits = [now - before for before, now in pairwise([0.0, *times])]
    answered = [
        (line["first_s"], at, wait)
        for line, at, wait in zip(lines, times, waits, strict=True)
        if line["first_s"] is not None
    ]
    slowest = sorted(answered, reverse=True)[:SLOWEST]
    return ", ".join(f"{1000 * first:.1f} ms at {at:.2f} s ({1000 * wait:.0f} ms)" for first, at, wait in slowest)


def describe_silences(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the longest silences of players: their length, start, and how much of the line had been played."""
    silences = [tuple(one) for line in lines for one in line["silences"]]
    longest = sorted(silences, key=lambda one: one[0] - one[1])[:SLOWEST]
    return ", ".join(
        f"{1000 * (over - began):.1f} ms at {began:.2f} s behind {played_s:.2f} s" for began, over, played_s in longest
    )


def figures_of(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of all lines, by their names in the row."""
    lines = answers["lines"]
    first = [line["first_s"] for line in lines if line["first_s"] is not None]
    audible = [line["audible_s"] for line in lines if line["audible_s"] is not None]
    lost = [line["error"] for line in lines if line["error"] or not line["size"]]
    return {
        "lines": len(lines),
        "lost": len(lost),
        "refused": sum(error.startswith("429") for error in lost),
        "p50_ms": percentile_ms(first, 50),
        "p95_ms": percentile_ms(first, 95),
        "p99_ms": percentile_ms(first, 99),
        "most_ms": 1000 * max(first, default=0.0),
        "audible_p50_ms": percentile_ms(audible, 50),
        "audible_p95_ms": percentile_ms(audible, 95),
        "underruns": sum(line["underruns"] for line in lines),
        "client_underruns": sum(line["own_underruns"] for line in lines),
        "underrun_lines": sum(line["underruns"] > 0 for line in lines),
        "gap_ms": 1000 * max((line["gap_s"] for line in lines), default=0.0),
        "health_p50_ms": percentile_ms(answers["health_s"], 50),
        "health_p95_ms": percentile_ms(answers["health_s"], 95),
        "health_most_ms": percentile_ms(answers["health_s"], 100),
        "client_late_p95_ms": percentile_ms(answers["ticks_late_s"], 95),
        "client_late_most_ms": percentile_ms(answers["ticks_late_s"], 100),
        "sent_late_p95_ms": percentile_ms([line["late_s"] for line in lines], 95),
    }


def memory_of(metrics: Mapping[str, float], when: str) -> dict[str, float | None]:
    """Return the server's memory in MiB, None if it is unknown."""
    names = {"rss": "process_resident_memory_bytes", "gpu": "morph_tts_gpu_memory_bytes"}
    return {f"{name}_mib_{when}": metrics[key] / 2**20 if key in metrics else None for name, key in names.items()}


def slow_moments_of(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the server's figures of events that may have delayed all lines.

    ``late_captures`` and ``collection_most_ms`` count from when it was ready, before the measured lines.
    """

    def grown(name: str) -> float:
        return after.get(f"{PREFIX}_{name}_total", 0.0) - before.get(f"{PREFIX}_{name}_total", 0.0)

    return {
        "captures_before": before.get(f"{PREFIX}_captures_total", 0.0),
        "late_captures": after.get(f"{PREFIX}_late_captures_total", 0.0),
        "collections": grown("collections"),
        "collections_ms": 1000 * grown("collection_seconds"),
        "collection_most_ms": 1000 * after.get(f"{PREFIX}_collection_longest_seconds", 0.0),
        "gpu_allocations": grown("gpu_allocations"),
        "pinned_allocations": grown("pinned_allocations"),
    }


def make_row(
    case: Case,
    options: argparse.Namespace,
    wall_s: float,
    audio_s: float,
    figures: Mapping[str, Any],
) -> Row:
    """Return a row: ``audio_s`` seconds of sound in ``wall_s``, of all lines together."""
    audio_s = audio_s or FRAME_S  # of a run without a single answer
    details = {
        "voice": options.voice,
        "rate": case.rate,
        "rows": case.rows,
        "seconds": case.seconds,
        **figures,
    }
    batch, engine = case.rows or 0, "simulated" if options.simulated else "auto"
    return Row(
        "server", "morph", options.shape, engine, precision_of(options), case.seq_groups, batch,
        round(1000 * wall_s * FRAME_S * batch / audio_s, 3),
        round(audio_s / wall_s, 3),
        round(wall_s / audio_s, 5),
        {name: round(value, 3) if isinstance(value, (int, float)) else value for name, value in details.items()},
    )  # fmt: skip


def precision_of(options: argparse.Namespace) -> str:
    """Return the precision as in the rows of other tables."""
    precision = str(choose_dtype(options.precision, torch.device(options.device))).removeprefix("torch.")
    return precision if options.weights == "full" else "int8"


def cases_of(options: argparse.Namespace) -> dict[int | None, list[Case]]:
    """Return the cases by the rows of the server that they need."""
    rows = options.rows * len(options.rates) if len(options.rows) == 1 else options.rows
    cases: dict[int | None, list[Case]] = {}
    for groups in options.seq_groups:
        for rate, count in zip(options.rates, rows, strict=True):
            case = Case(rate, options.seconds, groups, count, options.shape in UNENDING)
            cases.setdefault(count, []).append(case)
    return cases


def run(options: argparse.Namespace, folder: Path) -> list[Row]:
    """Start a server for each number of rows, measure its cases, and add each row to the machine's file."""
    preset = options.voice == "preset"
    checkpoint, voices = prepare_checkpoint(folder, options.shape, preset)
    given = ["--checkpoint", str(checkpoint), *(["--voices", str(voices)] if voices else [])]
    for name in ("device", "weights", "precision", "waiting"):
        given += [f"--{name}", str(getattr(options, name))]
    module = "lab.benchmarks.simulated" if options.simulated else "serve"
    made: list[Row] = []
    for rows, cases in cases_of(options).items():
        more = ["--rows", str(rows), "--seq-groups", str(cases[0].seq_groups)]
        more += ["--engine", "graph"] if options.simulated else []
        with serving([*given, *more], module) as address:
            for case in cases:
                voice = None if voices is None else VOICE
                warm(address, case, voice)
                made.append(measure(address, case, voice, options))
                # Immediately: a rented machine may be gone before the next row.
                path = save_rows(made, torch.device(options.device), options)
                print(f"{describe(made[-1])}; written to {path}", flush=True)
    return made


def describe(row: Row) -> str:
    """Return a row in one line, printed before the table is complete."""
    values = (f"{name} {value:g}" for name, value in row.details.items() if isinstance(value, (int, float)))
    throughput = f"{row.audio_seconds_per_second:.1f} s of sound a second"
    return f"{row.model} S={row.seq_groups}: {throughput}, {', '.join(values)}"


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    table = parser(__doc__, frames=0, repeats=1)
    table.add_argument("--rates", type=float, nargs="+", default=[1.0], help="requests a second")
    table.add_argument("--seconds", type=float, default=60.0, help="how long requests come at each rate")
    table.add_argument("--seq-groups", type=int, nargs="+", default=[15])
    table.add_argument(
        "--rows", type=int, nargs="+", default=[8], help="of the server: one for all rates, or each its own"
    )
    table.add_argument("--waiting", type=int, default=256, help="requests that may wait at the server")
    table.add_argument("--voice", choices=("x_vector", "preset"), default="x_vector")
    add_simulated(table)
    options = table.parse_args(arguments)
    check_simulated(table, options)
    if len(options.rows) not in (1, len(options.rates)):
        table.error(f"--rows has {len(options.rows)} numbers: give one, or {len(options.rates)}")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    with tempfile.TemporaryDirectory() as folder:
        rows = run(options, options.checkpoints or Path(folder))
    print(f"\n{markdown(rows)}")


if __name__ == "__main__":
    main()

"""Table "attacks": what a client of the speech server notices of others that mean harm.

    python -m lab.benchmarks.attacks --device cpu
    python -m lab.benchmarks.attacks --device cpu --attacks idle leavers --leavers 50

The server is the command line's with two rows, in its own process, and speaks with the demo voice; so is the attacker
(``attack_clients.py``). One client hears ``--lines`` lines one after the other, first alone, then beside each attack.
``first`` is from before its request to the first byte of sound, ``gap`` the longest time between two parts of it; the
medians of the lines, and the longest. ``health`` is a request that no model answers, ten times a second during the
attack; ``health_failed`` of them were not answered. Memory and threads are the server's, before the attack and
``--settle`` seconds after it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

import pack

from .attack_clients import ATTACKS, PATH, PROSE
from .common import DEMO, parser, percentile_ms
from .results import PartRow, save_rows
from .server_process import prepare_checkpoint, started

HEALTH_EVERY_S = 0.1
HEALTH_TIMEOUT_S = 10.0
BEGINS_S = 3.0  # until an attack has opened its connections
LINE_TIMEOUT_S = 300.0
ROWS = 2


@dataclass(frozen=True)
class AttackRow(PartRow):
    """One attack; times in milliseconds, memory in MiB."""

    attack: str
    seq_groups: int
    lines: int
    first_alone_ms: float
    first_ms: float
    first_most_ms: float
    gap_alone_ms: float
    gap_ms: float
    gap_most_ms: float
    health_p50_ms: float | None
    health_most_ms: float | None
    health_failed: int
    rss_mib_before: float
    rss_mib_after: float
    threads_before: int
    threads_after: int


@dataclass
class Heard:
    """What a client noticed of its lines; seconds."""

    first_s: list[float] = field(default_factory=list)
    gap_s: list[float] = field(default_factory=list)


@dataclass
class Health:
    """What the way to the server and back took; seconds."""

    took_s: list[float] = field(default_factory=list)
    failed: int = 0


def hear(address: str, seq_groups: int, heard: Heard) -> None:
    """Hear one line."""
    fields = {"model": "tts-1", "input": PROSE, "response_format": "pcm", "seed": 1, "seq_groups": seq_groups}
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}{PATH}", json.dumps(fields).encode(), kind)
    began = before = time.perf_counter()
    longest = first = 0.0
    with urllib.request.urlopen(request, timeout=LINE_TIMEOUT_S) as answer:
        while answer.read1(1 << 16):
            now = time.perf_counter()
            if first:
                longest = max(longest, now - before)
            else:
                first = now - began
            before = now
    heard.first_s.append(first)
    heard.gap_s.append(longest)


@contextmanager
def watched_health(address: str) -> Iterator[Health]:
    """Ask for ``/health`` meanwhile, each time over a connection of its own."""
    health, over = Health(), threading.Event()

    def ask() -> None:
        while not over.wait(HEALTH_EVERY_S):
            began = time.perf_counter()
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=HEALTH_TIMEOUT_S) as answer:
                    answer.read()
            except OSError:
                health.failed += 1
            else:
                health.took_s.append(time.perf_counter() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield health
    finally:
        over.set()
        thread.join()


@contextmanager
def attacked(name: str, address: str, options: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    """Attack meanwhile; yield the attacker's process."""
    count = options.leavers if name == "leavers" else options.connections
    command = [sys.executable, "-m", "lab.benchmarks.attack_clients", name, address, "--count", str(count)]
    process = subprocess.Popen(command, cwd=pack.ROOT)
    try:
        time.sleep(BEGINS_S)
        yield process
    finally:
        process.terminate()
        process.wait()


def size_of(pid: int) -> tuple[float, int]:
    """Return a process's memory in MiB, and its threads."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir(f"/proc/{pid}/task"))


def measure(name: str, address: str, pid: int, alone: Heard, options: argparse.Namespace) -> AttackRow:
    """Measure one attack."""
    heard, before = Heard(), size_of(pid)
    with attacked(name, address, options) as attacker, watched_health(address) as health:
        while len(heard.first_s) < options.lines or (name == "leavers" and attacker.poll() is None):
            hear(address, options.seq_groups, heard)
    time.sleep(options.settle)
    after = size_of(pid)
    return AttackRow(
        "attacks", "morph", options.shape, "auto", "float32", ROWS,
        name, options.seq_groups, len(heard.first_s),
        usual_ms(alone.first_s), usual_ms(heard.first_s), round(1000 * max(heard.first_s), 1),
        usual_ms(alone.gap_s), usual_ms(heard.gap_s), round(1000 * max(heard.gap_s), 1),
        percentile_ms(health.took_s, 50), percentile_ms(health.took_s, 100), health.failed,
        round(before[0], 1), round(after[0], 1), before[1], after[1],
    )  # fmt: skip


def usual_ms(seconds: Sequence[float]) -> float:
    """Return the median of times, in milliseconds."""
    return round(1000 * statistics.median(seconds), 1)


def run(options: argparse.Namespace) -> list[AttackRow]:
    """Start a server, attack it in every way, and add each row to the machine's file."""
    checkpoint, _ = prepare_checkpoint(Path(), DEMO, preset=True)
    given = ["--checkpoint", str(options.checkpoint or checkpoint), "--rows", str(ROWS)]
    given += ["--device", options.device, "--seq-groups", str(options.seq_groups)]
    rows, alone = list[AttackRow](), Heard()
    with started(given) as (address, process):
        for lines in (Heard(), *[alone] * options.lines):  # the first is not counted
            hear(address, options.seq_groups, lines)
        for name in options.attacks:
            rows.append(measure(name, address, process.pid, alone, options))
            save_rows(rows, torch.device(options.device), options)
            print(json.dumps(rows[-1].flat()), flush=True)
    return rows


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    table = parser(__doc__, frames=0, repeats=1)
    table.set_defaults(shape=DEMO)
    table.add_argument("--checkpoint", type=Path, help="with speakers; none: the demo voice")
    table.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    table.add_argument("--seq-groups", type=int, default=5)
    table.add_argument("--lines", type=int, default=5, help="heard alone, and beside each attack")
    table.add_argument("--connections", type=int, default=1000, help="idle ones, and silent WebSockets")
    table.add_argument("--leavers", type=int, default=200, help="of each format")
    table.add_argument("--settle", type=float, default=10.0, help="seconds after an attack")
    return table.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, and store the table."""
    run(parse_arguments(arguments))


if __name__ == "__main__":
    main()

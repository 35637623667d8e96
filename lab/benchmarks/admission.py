"""Simulate a busy server with the scheduler alone: no torch, no threads, and a simulated clock.

    python -m lab.benchmarks.admission --rows 128 --rate 100 --seconds 15 --frame 0.006 --line 0.000108
    python -m lab.benchmarks.admission --rows 2 --rate 0.2 --seconds 60 --frame 0.02 --line 0.01 --texts 6

Lines of 3.8 to 7.5 s arrive at random times, ``--rate`` a second; ``--texts`` of four minutes are there from the
beginning. A frame takes ``--frame`` seconds and ``--line`` for each line in it, an exchange of rows ``--exchange``. It
prints percentiles of the latency of first chunks and of players' gaps, for lines and for texts.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass

from qwen3_tts_morph.morph.batch.loop import EXCHANGE_S, EXCHANGES, NEWCOMERS
from qwen3_tts_morph.morph.batch.scheduler import Scheduler
from qwen3_tts_morph.morph.options import FRAME_RATE

from .common import percentile_ms

TEXT_S = 240.0
LARGEST = 8  # frames of a chunk


@dataclass(eq=False)
class SimulatedLine:
    """A line that is decoded and played."""

    arrived_s: float
    frames: int
    made = sent = 0
    has_row = False
    first_s: float | None = None
    gap_s = plays_until = 0.0
    order, caller, is_alone, device, group, is_live, length = 0, "", False, 0, None, True, 1.0

    @property
    def left_s(self) -> float:
        return (self.frames - self.sent) / FRAME_RATE

    @property
    def wants(self) -> int:
        return int(not self.has_row)

    def deadline(self, now: float) -> float:
        return now if self.first_s is None else self.plays_until

    def allows(self, device: int) -> bool:
        return True

    def add_frame(self, now: float) -> None:
        """Add a frame; send a chunk once it is as large as all before it, and at the end."""
        self.made += 1
        if (chunk := self.made - self.sent) < min(LARGEST, 1 + self.sent) and self.made < self.frames:
            return
        if self.first_s is None:
            self.first_s = self.plays_until = now
        self.gap_s = max(self.gap_s, now - self.plays_until)
        self.plays_until, self.sent = max(now, self.plays_until) + chunk / FRAME_RATE, self.made


class Simulation:
    def __init__(self, options: argparse.Namespace):
        self.options, self.scheduler = options, Scheduler[SimulatedLine]([options.rows])
        self.now = self.exchange_at = 0.0
        self.running, self.exchanges = list[SimulatedLine](), 0

    def admit(self) -> None:
        free = min(self.options.rows - len(self.running), NEWCOMERS)
        for line in self.scheduler.next(0, free, self.now) if self.scheduler.wanted else ():
            self.running.append(line)
            line.has_row = True
            self.scheduler.requeue(line, self.now)

    def leave(self, line: SimulatedLine) -> None:
        self.running.remove(line)
        line.has_row = False
        self.scheduler.release(line, self.now)

    def exchange(self) -> None:
        self.exchange_at = self.now + EXCHANGE_S
        for _ in range(EXCHANGES):
            line = self.scheduler.yields(0, self.now, self.options.rows - len(self.running))
            if line is None:
                return
            self.leave(line)
            self.scheduler.requeue(line, self.now)
            self.admit()
            self.now, self.exchanges = self.now + self.options.exchange, self.exchanges + 1

    def step(self, has_arrived: bool) -> None:
        self.admit()
        if self.scheduler.wanted and (has_arrived or self.now >= self.exchange_at):
            self.exchange()
        self.now += self.options.frame + self.options.line * len(self.running)
        for line in list(self.running):
            line.add_frame(self.now)
            if line.made == line.frames:
                self.leave(line)
                self.scheduler.remove(line)


def play(options: argparse.Namespace) -> tuple[Simulation, list[SimulatedLine]]:
    chance, world, arrives_s = random.Random(1), Simulation(options), 0.0
    lines = [SimulatedLine(0.0, round(TEXT_S * FRAME_RATE)) for _ in range(options.texts)]
    while arrives_s < options.seconds:
        arrives_s += chance.expovariate(options.rate)
        lines.append(SimulatedLine(arrives_s, round(chance.uniform(3.8, 7.5) * FRAME_RATE)))
    coming = 0
    while coming < len(lines) or world.running or world.scheduler.wanted:
        before = coming
        while coming < len(lines) and lines[coming].arrived_s <= world.now:
            world.scheduler.submit([lines[coming]], world.now)
            coming += 1
        world.step(coming > before)
    return world, lines


def describe(seconds: Sequence[float]) -> str:
    parts = [("p50", 50), ("p95", 95), ("most", 100)]
    return ", ".join(f"{name} {percentile_ms(seconds, percent):.0f}" for name, percent in parts)


def main() -> None:
    table = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, value in (("rows", 128), ("texts", 0)):
        table.add_argument(f"--{name}", type=int, default=value)
    for name, seconds in (
        ("rate", 100),
        ("seconds", 15),
        ("frame", 0.006),
        ("line", 0.000108),
        ("exchange", 0.001),
    ):
        table.add_argument(f"--{name}", type=float, default=seconds)
    options = table.parse_args()
    world, played = play(options)
    for name, lines in (("lines", played[options.texts :]), ("texts", played[: options.texts])):
        if lines:
            waits = describe([(one.first_s or 0.0) - one.arrived_s for one in lines])
            gaps = describe([one.gap_s for one in lines])
            print(f"{len(lines)} {name}: ms to first chunk {waits}; gaps {gaps}")
    print(f"{world.exchanges} changes of rows within a piece; all were made in {world.now:.1f} s")


if __name__ == "__main__":
    main()

"""How many GPUs a number of listeners needs: a discrete-event simulation (simpy), fed with measured rows.

    python -m lab.benchmarks.capacity --price 3.5
    python -m lab.benchmarks.capacity --model 1.7B --seq-groups 15 --targets 25 100

A listener hears lines of 4 to 8 s one after another, without a rest: so many listeners ask for a sixth as many lines a
second, at random moments. GPUs are servers as ``serve`` starts them; a balancer gives a line to the one with fewest.
A GPU makes a frame of all its lines at a time. What that takes is interpolated between measured rows of the results
file: the kernels' share by the rows of the server (table "batches"), and the rest (codec, host) by the lines that play
(table "stream", of 0.6B at SEQ_GROUPS 15, which has most such rows: for other settings it is an estimate). A line that
comes waits for a row, for the frame that runs, and for its prompt, which holds up the others as long as a lone line
takes to its first sound beside a frame. What a line that comes to many takes beyond that (the measured median of
arriving lines, less one and a half frames) is its own: its first step of the codec runs after theirs. The 95th
percentile of arriving lines and the newest rows of the table "server" are not used, but checked.

GPUs beyond eight are groups of eight, each with its share of the lines; their number is rounded up. A number of GPUs
holds a target if the 95th percentile of the first sound is within it, and no line is refused, in each of five runs with
random moments of their own: near the most that a GPU can do, one run's percentile may be several times another's.
The cost per hour of audio is the price of a GPU's hour times GPUs over listeners.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import simpy
from qwen3_tts_morph.morph.batch.running import NEWCOMERS
from qwen3_tts_morph.morph.options import FRAME_RATE

from .results import FOLDER
from .results import latest as newest
from .server import LONGEST_S, SHORTEST_S

LINE_S = (SHORTEST_S + LONGEST_S) / 2
RESULTS = FOLDER / "nvidia-h200.json"
KEPT = FOLDER / "capacity.json"
LISTENERS = (10, 100, 1_000, 10_000, 100_000)
GROUP = 8  # GPUs that are simulated together
WARM_S = 30.0  # not counted: near the most that a GPU can do, its queue takes that long to build up
SEEDS = (1, 2, 3, 4, 5)  # of the runs that all have to hold a target
STEP = 1.03  # between rates that are tried
LINES_TO_COUNT = 5.0  # a second, on average: at lower rates more seconds are simulated
WAITING = 64  # lines that may wait at a server; beyond them it refuses


@dataclass(frozen=True)
class Curve:
    """Measured points, with straight lines between them, and beyond the last as between the last two.

    Args:
        points: value by number of lines.
    """

    points: Mapping[int, float]

    def at(self, lines: float) -> float:
        """Return the value at a number of lines."""
        xs = sorted(self.points)
        if len(xs) == 1 or lines <= xs[0]:
            return self.points[xs[0]]
        right = next((index for index, x in enumerate(xs) if x >= lines), len(xs) - 1)
        low, high = xs[max(0, right - 1)], xs[max(1, right)]
        slope = (self.points[high] - self.points[low]) / (high - low)
        return self.points[low] + slope * (lines - low)


@dataclass(frozen=True)
class Machine:
    """What a GPU takes, in ms.

    Args:
        kernels: of a frame, by the rows of the server.
        rest: of a frame beside its kernels, by the lines that play.
        prefill: of a line that comes, by the lines that play; that of a lone line holds up the others.
        http_ms: of a request beside the engine.
    """

    kernels: Curve
    rest: Curve
    prefill: Curve
    http_ms: float = 0.0

    def frame_ms(self, rows: int, lines: int) -> float:
        """Return the time of a frame, by the number of lines and of the server's rows."""
        return self.kernels.at(rows) + self.rest.at(lines)


def read_machine(rows: Sequence[Mapping[str, Any]], model: str, seq_groups: int, http_ms: float) -> Machine:
    """Return what the rows of a results file say of a model at a SEQ_GROUPS.

    Raises:
        ValueError: if a table has no row of them.
    """
    streams = latest(rows, "stream", "0.6B", 15)
    frames = Curve({lines: row["ms_per_frame"] for lines, row in streams.items()})
    base = kernels_of(rows, "0.6B", 15)
    first = {1: streams[1]["first_playable_ms"] - frames.at(1)}
    for lines, row in streams.items():
        if row.get("arrival_p50_ms"):
            first[lines] = max(first[1], row["arrival_p50_ms"] - 1.5 * frames.at(lines))
    rest = {lines: frames.at(lines) - base.at(lines) for lines in streams}
    return Machine(kernels_of(rows, model, seq_groups), Curve(rest), Curve(first), http_ms)


def latest(
    rows: Sequence[Mapping[str, Any]], table: str, model: str, groups: int
) -> dict[int, Mapping[str, Any]]:
    """Return the last row of a table for each number of lines, of voices that are an embedding.

    Lines are as long as those of the simulation, or longer: of a shorter one the beginning is a large part.
    """
    found = {
        int(row["lines"]): row
        for row in rows
        if (row["table"], row["model"], row["seq_groups"]) == (table, model, groups)
        and row["voice"] == "x_vector"
        and row["seconds"] >= SHORTEST_S
    }
    if 1 not in found:
        raise ValueError(f"the results have no row of table {table}, {model}, S={groups}: measure it")
    return found


def kernels_of(rows: Sequence[Mapping[str, Any]], model: str, groups: int) -> Curve:
    """Return the ms of a frame without codec, by batch."""
    points = {
        int(row["batch"]): float(row["ms_per_frame"])
        for row in rows
        if (row["table"], row["model"], row["seq_groups"], row["engine"])
        == ("batches", model, groups, "kernels")
        and not row["precision"].startswith("int8")
    }
    if not points:
        raise ValueError(f"the results have no row of table batches, {model}, S={groups}: measure it")
    return Curve(points)


@dataclass
class Heard:
    """What came of the lines; ms.

    Args:
        first_ms: to each line's first sound.
        refused: lines that found WAITING others before them.
        slowest_frame_ms: of any GPU, while it played lines.
        frames: that were made.
    """

    first_ms: list[float] = field(default_factory=list)
    refused: int = 0
    slowest_frame_ms: float = 0.0
    frames: int = 0


class Gpu:
    """One server: its lines, frame by frame. ``env`` counts ms."""

    def __init__(self, env: simpy.Environment, machine: Machine, rows: int, heard: Heard):
        self._env, self._rows, self._heard = env, rows, heard
        # By the lines that play: of a frame, and of a line that comes beside it.
        self._takes = [machine.frame_ms(rows, lines) for lines in range(rows + 1)]
        self._alone = machine.prefill.at(1)
        beside = (max(0.0, machine.prefill.at(lines) - self._alone) for lines in range(rows + 1))
        self._own = [one + machine.http_ms for one in beside]
        self._waiting: deque[tuple[float, int]] = deque()
        self._playing, self._frame = 0, 0
        self._ends: Counter[int] = Counter()  # lines that play, by their last frame
        self._bell = env.event()
        env.process(self._run())

    @property
    def lines(self) -> int:
        """How many play or wait."""
        return self._playing + len(self._waiting)

    def take(self, frames: int) -> None:
        """Take a line of this many frames, or refuse it."""
        if len(self._waiting) >= WAITING:
            self._heard.refused += 1
            return
        self._waiting.append((self._env.now, frames))
        if not self._bell.triggered:
            self._bell.succeed()

    def _run(self) -> Generator[simpy.Event, None, None]:
        while True:
            if not self.lines:
                self._bell = self._env.event()
                yield self._bell
            came = self._admit()
            playing, self._frame = self._playing, self._frame + 1
            takes = self._takes[playing]
            self._heard.slowest_frame_ms = max(self._heard.slowest_frame_ms, takes)
            yield self._env.timeout(takes + self._alone * len(came))
            if self._env.now > 1000 * WARM_S:
                self._heard.first_ms += [self._env.now - at + self._own[playing] for at in came]
            self._heard.frames += playing
            self._playing -= self._ends.pop(self._frame, 0)

    def _admit(self) -> list[float]:
        """Give free rows to lines that wait, a few per frame while others play; return when these came."""
        came: list[float] = []
        busy = bool(self._playing)
        while self._waiting and self._playing < self._rows and not (busy and len(came) >= NEWCOMERS):
            at, frames = self._waiting.popleft()
            self._playing += 1
            self._ends[self._frame + frames] += 1
            came.append(at)
        return came


@dataclass(frozen=True)
class Load:
    """Lines that come to GPUs.

    Args:
        gpus: among which a balancer spreads the lines.
        rows: of each.
        rate: lines a second, of all GPUs together.
        seconds: that are counted, after WARM_S.
    """

    gpus: int
    rows: int
    rate: float
    seconds: float


def simulate(machine: Machine, load: Load, seed: int = SEEDS[0]) -> Heard:
    """Return what is heard of lines that come at random moments, up to the first one that is refused."""
    env, heard, chance = simpy.Environment(), Heard(), random.Random(seed)
    servers = [Gpu(env, machine, load.rows, heard) for _ in range(load.gpus)]

    def come() -> Generator[simpy.Event, None, None]:
        while not heard.refused:
            yield env.timeout(1000 * chance.expovariate(load.rate))
            frames = round(chance.uniform(SHORTEST_S, LONGEST_S) * FRAME_RATE)
            min(servers, key=lambda server: server.lines).take(frames)

    refused = env.process(come())
    env.run(until=env.timeout(1000 * (load.seconds + WARM_S)) | refused)
    return heard


@dataclass(frozen=True)
class Plan:
    """How a number of listeners is served.

    Args:
        listeners: at once.
        target_ms: of the 95th percentile of the first sound.
        gpus: the fewest that hold it, 0 if none do.
        rows: of each server.
        p95_ms: that they hold in the worst run.
        least_p95_ms: in the best one.
        cost: of an hour of audio, where a GPU's hour costs ``price``.
    """

    listeners: int
    target_ms: float
    gpus: int
    rows: int
    p95_ms: float
    least_p95_ms: float
    cost: float


class Planner:
    """Finds the fewest GPUs. Rates are tried in steps of STEP, so that what was simulated serves several questions.

    Args:
        machine: each.
        rows: that a server may have.
        seconds: that are counted of each run.
        seeds: of the runs that all have to hold a target.
    """

    def __init__(self, machine: Machine, rows: Sequence[int], seconds: float, seeds: Sequence[int] = SEEDS):
        self._machine, self._rows, self._seconds, self._seeds = machine, rows, seconds, seeds
        self._known: dict[tuple[int, int, int, int], float] = {}

    def plan(self, listeners: int, target_ms: float, price: float) -> Plan:
        """Return the fewest GPUs that hold a target, with the number of rows that is best for it."""
        plans = [
            plan
            for rows in self._rows
            if (plan := self._fewest(rows, listeners / LINE_S, target_ms)) is not None
        ]
        if not plans:
            return Plan(listeners, target_ms, 0, 0, math.inf, math.inf, math.inf)
        gpus, worst, best, rows = min(plans)
        cost = round(price * gpus / listeners, 6)
        return Plan(listeners, target_ms, gpus, rows, round(worst, 1), round(best, 1), cost)

    def _fewest(self, rows: int, rate: float, target_ms: float) -> tuple[int, float, float, int] | None:
        """Return the fewest GPUs with this many rows, their worst and best p95, and the rows; None where none do."""
        if not self._holds((1, rows, 0), target_ms):
            return None
        most, needed = self._most(rows, target_ms), max(0, math.ceil(math.log(rate) / math.log(STEP)))
        fit = (n for n in range(1, GROUP + 1) if needed <= most and self._holds((n, rows, needed), target_ms))
        gpus = next(fit, 0)
        p95 = self._p95s((gpus, rows, needed) if gpus else (GROUP, rows, most))
        return gpus or math.ceil(GROUP * rate / STEP**most), max(p95), min(p95), rows

    def _most(self, rows: int, target_ms: float) -> int:
        """Return the highest rate at which a GROUP holds a target, as a power of STEP."""
        low, high = 0, 128
        while self._holds((GROUP, rows, high), target_ms):
            low, high = high, high + 64
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._holds((GROUP, rows, middle), target_ms) else (low, middle)
        return low

    def _holds(self, point: tuple[int, int, int], target_ms: float) -> bool:
        """Whether every run of GPUs, rows and STEP**step lines a second holds a target; ends with one that does not."""
        return all(self._p95(*point, seed) <= target_ms for seed in self._seeds)

    def _p95s(self, point: tuple[int, int, int]) -> list[float]:
        """Return the p95 of every run, in ms."""
        return [self._p95(*point, seed) for seed in self._seeds]

    def _p95(self, gpus: int, rows: int, step: int, seed: int) -> float:
        """Return the p95 of the first sound in ms, in one run; infinite if lines are refused."""
        key = gpus, rows, step, seed
        if key not in self._known:
            rate = STEP**step
            load = Load(gpus, rows, rate, self._seconds * max(1.0, LINES_TO_COUNT / rate))
            heard = simulate(self._machine, load, seed)
            self._known[key] = percentile(heard.first_ms, 95) if not heard.refused else math.inf
        return self._known[key]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return a percentile; infinite of nothing."""
    return float(np.percentile(values, percent)) if values else math.inf


def check(
    rows: Sequence[Mapping[str, Any]], machine: Machine, model: str, groups: int, seconds: float
) -> list[dict[str, Any]]:
    """Return measured figures that the simulation was not fed with, beside its own."""
    checks = []
    if (model, groups) == ("0.6B", 15):
        for lines, row in sorted(latest(rows, "stream", model, groups).items()):
            if row.get("arrival_p95_ms"):
                frame = machine.frame_ms(lines, lines)
                made = machine.prefill.at(lines) + frame * (
                    1 + np.random.default_rng(SEEDS[0]).uniform(size=1000)
                )
                checks.append(
                    {"what": f"a line that comes to {lines - 1}, p95", "measured_ms": row["arrival_p95_ms"],
                     "simulated_ms": round(percentile(made.tolist(), 95), 1)}
                )  # fmt: skip
    for (count, rate), row in sorted(servers(rows, model, groups).items()):
        heard = simulate(machine, Load(1, count, rate, seconds))
        for percent in (50, 95):
            checks.append(
                {"what": f"server, {count} rows, {rate:g} a second, p{percent}",
                 "measured_ms": row[f"p{percent}_ms"],
                 "simulated_ms": round(percentile(heard.first_ms, percent), 1)}
            )  # fmt: skip
    return checks


def servers(
    rows: Sequence[Mapping[str, Any]], model: str, groups: int
) -> dict[tuple[int, float], Mapping[str, Any]]:
    """Return the last row of the table "server" for each number of rows and rate, of the last day of that table."""
    return {
        (int(row["rows"]), float(row["rate"])): row
        for row in newest(rows)
        if (row["table"], row["model"], row["seq_groups"]) == ("server", model, groups)
    }


def curve(machine: Machine, rows: int, rates: Sequence[float], seconds: float) -> list[dict[str, float]]:
    """Return p50 and p95 of one GPU over the rate of lines, up to where lines are refused."""
    points = []
    for rate in rates:
        heard = simulate(machine, Load(1, rows, rate, seconds))
        if heard.refused or not heard.first_ms:
            break
        p50, p95 = (round(percentile(heard.first_ms, percent), 1) for percent in (50, 95))
        points.append(
            {"rate": rate, "p50_ms": p50, "p95_ms": p95, "frame_ms": round(heard.slowest_frame_ms, 1)}
        )
    return points


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Draw the first sound over the rate of one GPU, and GPUs over listeners."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "capacity"
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6))
    for rows, points in document["curves"].items():
        left.plot(
            [one["rate"] for one in points], [one["p95_ms"] for one in points], ".-", label=f"{rows} rows"
        )
    left.set(xlabel="lines a second, one GPU", ylabel="first sound, p95, ms", yscale="log")
    for target in sorted({plan["target_ms"] for plan in document["plans"]}):
        plans = [plan for plan in document["plans"] if plan["target_ms"] == target and plan["gpus"]]
        right.plot(
            [one["listeners"] for one in plans], [one["gpus"] for one in plans], "o-", label=f"{target:g} ms"
        )
    right.set(xlabel="listeners at once", ylabel="GPUs", xscale="log", yscale="log")
    for axes in (left, right):
        axes.legend(loc="upper left")
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, simulate, print and store the document and its plot."""
    table = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    table.add_argument("--results", type=Path, default=RESULTS, help="measured rows")
    table.add_argument("--model", default="0.6B")
    table.add_argument("--seq-groups", type=int, default=15)
    table.add_argument("--listeners", type=int, nargs="+", default=LISTENERS)
    table.add_argument("--targets", type=float, nargs="+", default=(25.0, 50.0, 100.0, 250.0), help="p95, ms")
    table.add_argument(
        "--rows", type=int, nargs="+", default=(8, 16, 32, 64, 128), help="that a server may have"
    )
    table.add_argument("--price", type=float, default=1.0, help="of a GPU's hour, in any currency")
    table.add_argument(
        "--http-ms", type=float, default=2.0, help="of a request beside the engine: an assumption"
    )
    table.add_argument("--seconds", type=float, default=120.0, help="that are counted of each run")
    table.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="of the runs that hold a target")
    table.add_argument("--out", type=Path, default=KEPT)
    options = table.parse_args(arguments)
    document = make_document(options)
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    draw(document, options.out.with_suffix(".svg"))
    print(describe(document), f"\n\nwritten to {options.out}", sep="")


def make_document(options: argparse.Namespace) -> dict[str, Any]:
    """Return everything that the simulation says, as JSON's values."""
    rows = json.loads(options.results.read_text(encoding="utf-8"))["rows"]
    machine = read_machine(rows, options.model, options.seq_groups, options.http_ms)
    planner = Planner(machine, options.rows, options.seconds, options.seeds)
    plans = [
        asdict(planner.plan(listeners, target, options.price))
        for target in options.targets
        for listeners in options.listeners
    ]
    rates = [round(1.25**step, 1) for step in range(26)]
    return {
        "model": options.model,
        "seq_groups": options.seq_groups,
        "price": options.price,
        "http_ms": options.http_ms,
        "seconds": options.seconds,
        "seeds": list(options.seeds),
        "checks": check(rows, machine, options.model, options.seq_groups, options.seconds),
        "curves": {str(count): curve(machine, count, rates, options.seconds) for count in options.rows},
        "plans": [plan for plan in plans if plan["gpus"]],
    }


def describe(document: Mapping[str, Any]) -> str:
    """Return the document as text for people."""
    lines = [f"{document['model']}, S={document['seq_groups']}, an hour of a GPU costs {document['price']:g}"]
    for one in document["checks"]:
        lines.append(
            f"{one['what']}: measured {one['measured_ms']:.1f} ms, simulated {one['simulated_ms']:.1f}"
        )
    for plan in document["plans"]:
        lines.append(
            f"{plan['listeners']} listeners, p95 {plan['target_ms']:g} ms: {plan['gpus']} GPUs of {plan['rows']} rows "
            f"(p95 {plan['least_p95_ms']:g} to {plan['p95_ms']:g} ms), {plan['cost']:g} per hour of audio"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""The capacity model: against a queue that has a formula, against itself, and its page against what was kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("simpy", reason="not run: simpy is not installed")
import simpy

from lab.benchmarks import capacity
from lab.benchmarks.capacity import WAITING, Curve, Gpu, Heard, Load, Machine, Planner, read_machine, simulate
from tests.lab.benchmarks.results.test_readme import check_cell, table

FLAT = Machine(Curve({1: 8.0}), Curve({1: 2.0}), Curve({1: 5.0}))  # a frame takes 10 ms, a prompt 5


def test_curves_are_straight_between_their_points_and_beyond_the_last() -> None:
    curve = Curve({1: 10.0, 3: 20.0, 5: 40.0})
    assert [curve.at(x) for x in (0, 1, 2, 3, 4, 5, 7)] == [10, 10, 15, 20, 30, 40, 60]


def test_lines_wait_for_a_row_the_running_frame_and_their_prefill() -> None:
    env, heard = simpy.Environment(), Heard()
    gpu = Gpu(env, FLAT, 2, heard)

    def come() -> Any:
        yield env.timeout(1000 * capacity.WARM_S)
        gpu.take(3)  # heard after prefill and frame: 15; its frames end at 15, then later ones
        yield env.timeout(7)
        gpu.take(3)  # waits for the frame until 15, prefill and frame: until 30, after 23
        gpu.take(3)  # has a row when the first has ended: at 40; until 55, after 48
        yield env.timeout(0)

    env.process(come())
    env.run(until=1000 * capacity.WARM_S + 20_000)
    assert heard.first_ms == pytest.approx([15, 23, 48]) and heard.frames == 9
    assert gpu.lines == 0 and heard.slowest_frame_ms == 10


def test_more_lines_than_may_wait_are_refused() -> None:
    env, heard = simpy.Environment(), Heard()
    gpu = Gpu(env, FLAT, 1, heard)
    for _ in range(WAITING + 5):
        gpu.take(10)
    assert heard.refused == 5


@pytest.mark.slow
def test_a_server_of_one_row_is_the_queue_of_the_textbooks() -> None:
    """Pollaczek and Khinchine: the mean wait of M/G/1 is rate * E[S^2] / 2 / (1 - load)."""
    machine = Machine(Curve({1: 10.0}), Curve({1: 0.0}), Curve({1: 0.0}))
    frames, rate = range(50, 101), 0.9
    times = [0.01 * count for count in frames]
    mean, square = (sum(one**power for one in times) / len(times) for power in (1, 2))
    wait_ms = 1000 * rate * square / 2 / (1 - rate * mean)
    heard = simulate(machine, Load(1, 1, rate, 20_000))
    assert sum(heard.first_ms) / len(heard.first_ms) == pytest.approx(wait_ms + 10, rel=0.06)


def test_every_line_that_comes_is_spoken_and_the_same_seed_gives_the_same_figures() -> None:
    load = Load(2, 8, rate=5, seconds=60)
    heard = simulate(FLAT, load)
    assert heard.first_ms == simulate(FLAT, load).first_ms != simulate(FLAT, load, seed=2).first_ms
    assert len(heard.first_ms) == pytest.approx(300, rel=0.15) and heard.refused == 0
    assert heard.frames / (60 + capacity.WARM_S) == pytest.approx(5 * 75, rel=0.15)


@pytest.mark.slow
def test_more_listeners_need_more_gpus_and_a_sharper_target_no_fewer() -> None:
    planner = Planner(FLAT, [4, 8], seconds=20, seeds=(1, 2))
    few, many, sharp = planner.plan(20, 60, 2.0), planner.plan(200, 60, 2.0), planner.plan(200, 25, 2.0)
    assert (
        0 < few.gpus < many.gpus <= sharp.gpus and max(few.p95_ms, many.p95_ms) <= 60 and sharp.p95_ms <= 25
    )
    assert many.cost == pytest.approx(2.0 * many.gpus / 200, abs=1e-6)
    assert planner.plan(10, 5, 2.0).gpus == 0, "an idle GPU takes 15 ms"


@pytest.mark.slow
def test_a_target_is_held_only_if_every_run_holds_it() -> None:
    """Near the most that a GPU can do, runs differ: what is planned for all of them holds each one's target."""
    seeds, target_ms = (1, 2, 3), 120.0
    together = Planner(FLAT, [4], 20, seeds).plan(2000, target_ms, 1.0)
    alone = [Planner(FLAT, [4], 20, [seed]).plan(2000, target_ms, 1.0) for seed in seeds]
    assert together.gpus >= max(plan.gpus for plan in alone) > min(plan.gpus for plan in alone)
    assert together.least_p95_ms < together.p95_ms <= target_ms


def test_a_run_ends_with_the_first_line_that_is_refused() -> None:
    heard = simulate(FLAT, Load(1, 1, rate=100, seconds=1e9))
    assert heard.refused == 1


def test_what_was_not_measured_is_said() -> None:
    with pytest.raises(ValueError, match=r"no row of table stream, 0.6B, S=15: measure it"):
        read_machine([], "0.6B", 15, 0.0)


@pytest.mark.slow
def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--listeners", "10", "--targets", "100", "--rows", "8", "--seconds", "5", "--price", "3"]
    capacity.main([*options, "--out", str(tmp_path / "capacity.json")])
    document = json.loads((tmp_path / "capacity.json").read_text(encoding="utf-8"))
    assert document["plans"] == [
        {
            "listeners": 10,
            "target_ms": 100,
            "gpus": 1,
            "rows": 8,
            "cost": 0.3,
            "p95_ms": document["plans"][0]["p95_ms"],
            "least_p95_ms": document["plans"][0]["least_p95_ms"],
        }
    ]
    assert 0 < document["plans"][0]["least_p95_ms"] <= document["plans"][0]["p95_ms"] < 30
    assert all(one["measured_ms"] > 0 and one["simulated_ms"] > 0 for one in document["checks"])
    assert (tmp_path / "capacity.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert "10 listeners, p95 100 ms: 1 GPUs" in capsys.readouterr().out


def test_the_page_has_the_kept_figures() -> None:
    document = json.loads(capacity.KEPT.read_text(encoding="utf-8"))
    plans = {(plan["listeners"], plan["target_ms"]): plan for plan in document["plans"]}
    rows = table("docs/capacity.md", "listeners", "25 ms", "50 ms", "100 ms", "250 ms", "audio hour, 100 ms")
    assert len(rows) == len(capacity.LISTENERS)
    for listeners, *cells, cost in rows:
        count = int(listeners.replace(",", ""))
        for cell, target in zip(cells, (25, 50, 100, 250), strict=True):
            check_cell(cell, plans[count, target]["gpus"])
        check_cell(cost, plans[count, 100]["cost"])
    spread = table(
        "docs/capacity.md", "100,000 listeners, target", "GPUs", "rows of each", "p95 of five runs, ms"
    )
    for target, gpus, rows_of_each, runs in spread:
        plan = plans[100_000, float(target.removesuffix(" ms"))]
        check_cell(gpus, plan["gpus"])
        check_cell(rows_of_each, plan["rows"])
        check_cell(runs, plan["least_p95_ms"], plan["p95_ms"])
    checks = table("docs/capacity.md", "", "measured", "simulated")
    assert len(checks) == len(document["checks"])
    for (what, *cells), one in zip(checks, document["checks"], strict=True):
        assert what == one["what"]
        for cell, key in zip(cells, ("measured_ms", "simulated_ms"), strict=True):
            check_cell(cell, one[key])
            assert not math.isinf(one[key])

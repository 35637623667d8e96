"""More tables of docs/ hold the figures of lab/benchmarks/results. Figures that a page calls copied are left out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tests.lab.benchmarks.results.test_readme import (
    RESULTS,
    ROOT,
    check_cell,
    read_rows,
    table,
)

H200, H100 = "nvidia-h200", "nvidia-h100-80gb-hbm3"
CAPACITY = "docs/capacity.md"


def find(name: str, **wanted: Any) -> list[dict[str, Any]]:
    """Return a file's rows with these values, in its order."""
    return [row for row in read_rows(name) if all(row.get(key) == one for key, one in wanted.items())]


def tables(page: str, *titles: str) -> list[list[list[str]]]:
    """Return the cells of all tables of a page with these titles."""
    title = f"| {' | '.join(titles)} |"
    text = (ROOT / page).read_text(encoding="utf-8")
    bodies = re.findall(re.escape(title) + r"\n\|[-:|]+\n((?:\|.*\n)+)", text)
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
        for body in bodies
    ]


def check_firsts(cell: str, rows: Sequence[dict[str, Any]]) -> None:
    """Check the times to first samples in a cell, one per row."""
    check_cell(cell, *(row["first_playable_ms"] for row in rows))


# Of the guide's table: the files and commits of its devices.
STREAMED = {"H200": (H200, {"commit": "1d78a06", "voice": "x_vector"}),
            "H100": (H100, {"commit": "073737a", "voice": "x_vector"}),
            "two CPU cores": ("intel-r-xeon-r-processor-2-threads", {"voice": "preset"})}  # fmt: skip


def test_how_many_lines_at_once() -> None:
    titles = ("device, model", "S", "lines at once", "first samples, ms",
              "of a line that comes later, p50, p95", "ms per frame", "gaps")  # fmt: skip
    for label, groups, count, first, later, ms, gaps in table("docs/streaming.md", *titles):
        device, model = label.split(", ")
        name, wanted = STREAMED[device]
        model = model.removesuffix(" voice")
        row = find(name, table="stream", model=model, seq_groups=int(groups), lines=int(count), **wanted)[0]
        check_firsts(first, [row])
        check_cell(later, row["arrival_p50_ms"], row["arrival_p95_ms"])
        check_cell(ms, row["ms_per_frame"])
        check_cell(gaps, row["underruns"])


# Of the guide's table: rows of the log, (file, commit), by model and lines a second; on an H100 with gaps elsewhere.
ON_H200 = {("0.6B", 1): "8228a35", ("0.6B", 20): "8228a35", ("0.6B", 100): "cf61777",
           ("1.7B", 1): "88a9a13", ("1.7B", 20): "88a9a13"}  # fmt: skip
ON_H100 = {("0.6B", 1): (H100, "62b5e97"), ("0.6B", 20): (H100, "073737a"),
           ("0.6B", 100): (H100, "9290b9e, traced"), ("1.7B", 20): (H100, "931d6c0"),
           ("1.7B", 50): (H100, "9290b9e, traced")}  # fmt: skip


def longest(name: str, **wanted: Any) -> dict[str, Any]:
    """Return the row of the longest run with these values."""
    return max(find(name, **wanted), key=lambda row: row["seconds"])


def test_how_many_rows_for_how_many_listeners() -> None:
    lines = table("docs/server.md", "model", "lines a second", "listeners", "`--rows`", "GPU memory, GiB",
                  "H200: first sound, ms", "H100: first sound, ms")  # fmt: skip
    for model, rate, listeners, batch, memory, *times in lines:
        key = (model, int(rate))
        wanted = {"table": "server", "model": model, "rate": int(rate), "rows": int(batch)}
        on_h200, on_h100 = ON_H200.get(key), ON_H100.get(key)
        rows = [on_h200 and longest(H200, commit=on_h200, **wanted),
                on_h100 and longest(on_h100[0], commit=on_h100[1], **wanted)]  # fmt: skip
        assert all(bool(cell) == bool(row) for cell, row in zip(times, rows, strict=True))
        measured = [row for row in rows if row]
        check_cell(listeners, measured[0]["audio_seconds_per_second"])
        check_cell(memory, measured[0]["gpu_mib_end"] / 1024)
        for cell, row in zip(filter(None, times), measured, strict=True):
            check_cell(cell, row["p50_ms"], row["p95_ms"])
            assert (row["underruns"], row["lost"], row["refused"]) == (0, 0, 0)


# Of the guide's table, by way and GPU: the engine, commit and rows of the log's.
WAYS = {("`device` *all GPUs*", "H200"): ("shared", "8d0a24bb", 64),
        ("`serve --devices`", "H200"): ("server", "8d0a24bb", 64), ("`serve --ray`, 64 rows", "H100"):
        ("ray", "62b5e97", 64), ("`serve --ray`, 32 rows", "H100"): ("ray", "62b5e97", 32)}  # fmt: skip


def test_which_way_to_use_several_gpus() -> None:
    titles = ("you want", "way", "GPUs", "one, s of sound a second", "two", "times")
    for _, way, gpu, one, two, times in table("docs/many-gpus.md", *titles):
        if gpu == "not measured":
            assert (one, two, times) == ("", "", "")
            continue
        engine, commit, batch = WAYS[way, gpu]
        wanted = {"table": "many", "engine": engine, "commit": commit, "batch": batch}
        name = H200 if gpu == "H200" else H100
        first, second = find(name, **wanted)
        check_cell(one, first["audio_seconds_per_second"])
        check_cell(two, second["audio_seconds_per_second"])
        check_cell(times, second["times_one"])


def test_how_many_gpus() -> None:
    kept = json.loads((RESULTS / "capacity.json").read_text(encoding="utf-8"))
    plans = {(plan["listeners"], plan["target_ms"]): plan for plan in kept["plans"]}
    targets = (25, 50, 100, 250)
    titles = ("listeners", *(f"{target} ms" for target in targets), "audio hour, 100 ms")
    for listeners, *cells, cost in table(CAPACITY, *titles):
        count = int(listeners.replace(",", ""))
        for cell, target in zip(cells, targets, strict=True):
            check_cell(cell, plans[count, target]["gpus"])
        check_cell(cost, plans[count, 100]["cost"])
    spread = table(CAPACITY, "100,000 listeners, target", "GPUs", "rows of each", "p95 of five runs, ms")
    for target, gpus, rows, runs in spread:
        plan = plans[100_000, float(target.removesuffix(" ms"))]
        check_cell(f"{gpus} {rows}", plan["gpus"], plan["rows"])
        check_cell(runs, plan["least_p95_ms"], plan["p95_ms"])
    for (what, *cells), one in zip(table(CAPACITY, "", "measured", "simulated"), kept["checks"], strict=True):
        assert what == one["what"]
        check_cell(" ".join(cells), one["measured_ms"], one["simulated_ms"])

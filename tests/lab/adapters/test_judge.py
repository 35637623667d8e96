"""Rows of what the judges say of lines, and the page's table."""

import json

import pytest

from lab.adapters.judge import (
    ALONE,
    OWN,
    RESULTS,
    JudgedRecording,
    describe,
    describe_training,
    figures_of,
    row,
)
from lab.benchmarks.results import FOLDER
from pack import ROOT


def test_a_row_has_figures_with_intervals_and_what_was_trained() -> None:
    lines = [JudgedRecording(0.6, True, 1, 10, 100.0), JudgedRecording(0.8, False, 0, 10, 120.0)]
    found = figures_of(lines)
    assert {name: one.value for name, one in found.items()} == pytest.approx(
        {"similarity": 0.7, "identified": 50, "wrong": 5, "pitch_hz": 110}
    )
    about = {"failed": {"1": 2}, "training": {"layers": "all", "lines": 7}}
    one = row("1", lines, about)
    assert one["failed"] == 2 and one["similarity_95"] == [0.6, 0.8]
    assert describe(one).startswith("| all, 7 lines | 1 | 2 | 0.70 (0.60 to 0.80) | 50 (")
    assert describe(row(ALONE, lines, about)).startswith("|  | 0 | 2 |")
    alone = row(OWN, [JudgedRecording(0.6, None, 0, 5, 100.0)], {"failed": {}, "training": None})
    assert "identified" not in alone and "|  | 0.0 (0.0 to 0.0) | 100 (100 to 100) |" in describe(alone)
    assert json.dumps(alone)


def test_the_page_has_the_rows_of_the_results_file() -> None:
    rows = json.loads((FOLDER / RESULTS).read_text(encoding="utf-8"))["rows"]
    page = (ROOT / "docs" / "log" / "adapters.md").read_text(encoding="utf-8")
    assert {row["strength"] for row in rows} >= {OWN, ALONE, "1"} and len(rows) > 4
    for one in rows:
        assert describe(one) in page and one["date"] in page and one["spoken_on"] in page
        assert one["command"].startswith("python -m lab.adapters.judge ") and one["commit"]
        assert one["training"] is None or describe_training(one) in page
        assert one["failed"] in (0, None), "the page says that all lines ended by themselves"

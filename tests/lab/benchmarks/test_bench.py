"""The benchmarks of kernels write their rows with their origin, also if a check or a shape fails."""

import argparse
import json
from pathlib import Path

import pytest

from lab.benchmarks.bench import Bench, measure_shapes, parser


def test_rows_say_where_they_come_from_and_a_failed_check_is_told(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    options = parser("Doc.", repeats=1).parse_args(
        ["--shape", "tiny", "tiny-1.7B", "--out", str(out), "--commit", "abc1234"]
    )

    def run(bench: Bench, _: argparse.Namespace) -> None:
        bench.note("frame", "S=1", ms=2.0)
        bench.require(bench.name == "tiny", "a check")
        if bench.name != "tiny":
            raise RuntimeError("the second shape fails")

    with pytest.raises(RuntimeError, match="the second shape fails"):
        measure_shapes(options, run)
    document = json.loads(out.read_text(encoding="utf-8"))
    assert [(row["model"], row["ms"], row["commit"]) for row in document["rows"]] == [
        ("tiny", 2.0, "abc1234"), ("tiny-1.7B", 2.0, "abc1234"),
    ]  # fmt: skip
    assert all(row["date"] and row["command"] for row in document["rows"]) and document["machine"]
    assert document["failures"] == ["tiny-1.7B: a check"]
    options.shape = ["tiny"]
    assert measure_shapes(options, lambda bench, _: bench.require(False, "no")) == 1
    assert measure_shapes(options, lambda bench, _: bench.require(True, "yes")) == 0

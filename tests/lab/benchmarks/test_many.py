"""The table of several devices: a dry run in which two models on the CPU stand for two GPUs."""

from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="not run: aiohttp is not installed")

from lab.benchmarks import many
from tests.lab.benchmarks.test_tables import rows_of


def test_the_table(tmp_path: Path) -> None:
    rows = rows_of(many, tmp_path, "--devices", "cpu", "cpu", "--lines", "5", "--batch-size", "2")
    assert [(row["engine"], row["devices"], row["lines"]) for row in rows] == [
        ("shared", 1, 5),
        ("shared", 2, 5),
    ]
    assert rows[0]["times_one"] == 1 and rows[1]["times_one"] > 0

"""The table of lines that come shortly after another one: a dry run."""

from pathlib import Path

import pytest

from lab.benchmarks import joins
from tests.lab.benchmarks.test_tables import rows_of


@pytest.mark.slow
def test_the_table(tmp_path: Path) -> None:
    rows = rows_of(joins, tmp_path, "--delays", "15", "--seq-groups", "5", "--rows", "2", "--pause", "0")
    assert [row["delay_ms"] for row in rows] == [None, 15]
    for row in rows:
        assert (row["table"], row["batch"], row["voice"]) == ("joins", 2, "x_vector")
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["most_ms"]

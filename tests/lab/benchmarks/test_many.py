"""The table of several devices: a dry run in which two models on the CPU stand for two GPUs."""

from __future__ import annotations

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


@pytest.mark.slow
def test_devices_that_only_take_time(tmp_path: Path) -> None:
    given = ("--devices", "cpu", "cpu", "--lines", "5", "--batch-size", "2", "--simulated")
    one, two = rows_of(many, tmp_path, *given)
    assert [(row["engine"], row["devices"]) for row in (one, two)] == [("simulated", 1), ("simulated", 2)]
    assert min(one["times_one"], two["times_one"]) > 0


@pytest.mark.slow
def test_servers_have_a_row_for_one_device_and_one_for_all(tmp_path: Path) -> None:
    given = ("--devices", "cpu", "cpu", "--lines", "5", "--batch-size", "2", "--simulated")
    rows = rows_of(many, tmp_path, *given, "--engines", "server", "--checkpoints", str(tmp_path / "made"))
    assert [(row["engine"], row["devices"], row["in_flight"]) for row in rows] == [
        ("server", 1, 4),
        ("server", 2, 8),
    ]
    assert all(row["client_cpu"] > 0 for row in rows)


def test_one_device_has_nothing_to_be_compared_with(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        many.main(["--devices", "cpu"])
    assert "name two devices or more" in capsys.readouterr().err

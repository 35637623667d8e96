"""The table of streams: dry runs."""

from pathlib import Path

import pytest

from lab.benchmarks import stream
from tests.lab.benchmarks.test_tables import rows_of


@pytest.mark.slow
def test_the_table(tmp_path: Path) -> None:
    options = "--engines", "auto", "graph", "eager", "--lines", "1", "2", "--seq-groups", "5"
    rows = rows_of(stream, tmp_path, *options)
    assert [(row["engine"], row["lines"]) for row in rows] == [
        (engine, lines) for engine in ("auto", "graph", "eager") for lines in (1, 2)
    ]
    for row in rows:
        assert row["table"] == "stream" and row["batch"] == row["lines"]
        assert 0 < row["first_playable_ms"] <= row["first_audible_ms"]
        assert (row["gap_ms"] > 0) == (row["underruns"] > 0)


def test_one_line_says_when_its_steps_were_reached(tmp_path: Path) -> None:
    options = "--engines", "graph", "--voices", "x_vector", "icl", "--seq-groups", "5"
    rows = rows_of(stream, tmp_path, *options)
    assert [row["voice"] for row in rows] == ["x_vector", "icl"]
    steps = "prompt_ms", "prefill_launched_ms", "codec_began_ms", "codec_done_ms"
    for row in rows:
        times = [row[name] for name in (*steps, "first_playable_ms")]
        assert times == sorted(times) and row["prefill_done_ms"] >= row["prefill_launched_ms"]
        assert row["prefill_launched_ms"] <= row["codes_ms"] <= row["codec_done_ms"]

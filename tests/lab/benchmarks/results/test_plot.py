"""The plot shows what a file contains, and nothing else."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from lab.benchmarks.plot import main

HEAD = {"machine": "a machine", "versions": {"torch": "2"}}


def row(
    table: str, system: str, engine: str, groups: int, batch: int, ms: float, precision: str = "bfloat16"
) -> dict[str, object]:
    speed = 80 * batch / ms
    return {
        "table": table, "system": system, "model": "tiny", "engine": engine, "precision": precision,
        "seq_groups": groups, "batch": batch, "date": "2000-01-02",
        "ms_per_frame": ms, "audio_seconds_per_second": speed, "audio_seconds_per_second_with_codec": speed / 2,
    }  # fmt: skip


ROWS = [
    row("frames", "upstream", "generate", 15, 1, 75.0),
    *(row("frames", "morph", "eager", groups, 1, 10.0 + groups) for groups in (1, 15)),
    *(row("batches", "morph", "graph", 5, batch, 5.0 + batch) for batch in (1, 8)),
]


def draw(tmp_path: Path, rows: list[dict[str, object]], shape: str = "tiny") -> str:
    source, out = tmp_path / "machine.json", tmp_path / "speed.svg"
    source.write_text(json.dumps({**HEAD, "rows": rows}), encoding="utf-8")
    main([str(source), "--shape", shape, "--out", str(out)])
    return out.read_text(encoding="utf-8")


def test_each_table_has_its_own_plot(tmp_path):
    both, one = draw(tmp_path, ROWS), draw(tmp_path, ROWS[:3])
    assert both.count('id="axes_') == 2 and one.count('id="axes_') == 1

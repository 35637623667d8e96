"""Rows name their commit, day and command, and only the same measurement replaces them."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.benchmarks import common
from lab.benchmarks.common import RowSetting, make_row
from lab.benchmarks.results import FOLDER, Row, save_rows
from pack import ROOT

STREAM = str(ROOT / "lab" / "benchmarks" / "stream.py")


def row(ms: float, table: str = "stream", precision: str = "float32") -> Row:
    return Row(table, "morph", "tiny", "graph", precision, 5, 2, ms, 1.0, 1.0, {"lines": 3})


def stored(folder: Path, rows: list[Row], commit: str) -> list[dict[str, Any]]:
    path = save_rows(rows, torch.device("cpu"), argparse.Namespace(out=folder, commit=commit))
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


def test_a_figure_is_what_the_time_and_the_frames_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "precision_of", lambda _: "float32")
    made = make_row(RowSetting("line", "graph", 5, 4), argparse.Namespace(shape="tiny"), None, 500.0, [10, 15] * 2)
    assert (made.ms_per_frame, made.audio_seconds_per_second, made.rtf) == (40.0, 8.0, 0.125)


def test_a_row_says_its_commit_its_day_and_its_command_and_each_figure_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", [STREAM, "--shape", "tiny", "--out", str(tmp_path), "--lines", "1", "2"])
    [one] = stored(tmp_path, [row(1.0)], "abc1234")
    assert one["commit"] == "abc1234" and len(one["date"]) == 10
    assert one["command"] == "python -m lab.benchmarks.stream --shape tiny --lines 1 2"
    assert one["lines"] == 3 and "details" not in one


def test_only_the_same_command_on_the_same_commit_replaces_rows(tmp_path, monkeypatch) -> None:
    def times(words: str, commit: str, *rows: Row) -> list[float]:
        monkeypatch.setattr(sys, "argv", [STREAM, *words.split()])
        return [one["ms_per_frame"] for one in stored(tmp_path, list(rows), commit)]

    assert times("--lines 1", "a", row(1.0), row(2.0, "line")) == [1.0, 2.0]
    assert times("--lines 1", "b", row(3.0)) == [1.0, 2.0, 3.0]
    assert times("--lines 2", "b", row(4.0)) == [1.0, 2.0, 3.0, 4.0]
    assert times("--lines 1", "b", row(5.0, precision="int8")) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert times("--lines 1 --out /elsewhere", "a", row(6.0)) == [2.0, 3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("nvidia-h?00*.json")), ids=lambda path: path.stem)
def test_every_row_has_a_day_and_no_figure_twice(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = document.get("rows", [])
    assert all("details" not in one for one in rows)
    assert "date" in document or (rows and all(one["date"] for one in rows))

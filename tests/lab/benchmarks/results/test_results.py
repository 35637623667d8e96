"""Rows name their commit, day and command, and only the same measurement replaces them."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.benchmarks import common, results
from lab.benchmarks.common import Setting, make_row
from lab.benchmarks.origin import RESULTS, UNKNOWN, command_of, find_commit
from lab.benchmarks.results import FOLDER, Row, latest, save_rows
from pack import ROOT

DAY = "2026-01-02"
STREAM = str(ROOT / "lab" / "benchmarks" / "stream.py")


def row(ms: float, table: str = "stream", precision: str = "float32") -> Row:
    return Row(table, "morph", "tiny", "graph", precision, 5, 2, ms, 1.0, 1.0, {"lines": 3})


def stored(folder: Path, rows: list[Row], commit: str) -> list[dict[str, Any]]:
    path = save_rows(rows, torch.device("cpu"), argparse.Namespace(out=folder, commit=commit))
    return json.loads(path.read_text(encoding="utf-8"))["rows"]


def test_a_figure_is_what_the_time_and_the_frames_make_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "precision_of", lambda _: "float32")
    made = make_row(
        Setting("line", "graph", 5, 4), argparse.Namespace(shape="tiny"), None, 500.0, [10, 15] * 2
    )
    assert (made.ms_per_frame, made.audio_seconds_per_second, made.rtf) == (40.0, 8.0, 0.125)


def test_a_row_says_its_commit_its_day_and_its_command_and_each_figure_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [STREAM, "--shape", "tiny", "--out", str(tmp_path), "--lines", "1", "2"])
    [one] = stored(tmp_path, [row(1.0)], "abc1234")
    assert one["commit"] == "abc1234" and len(one["date"]) == 10
    assert one["command"] == "python -m lab.benchmarks.stream --shape tiny --lines 1 2"
    assert one["lines"] == 3 and "details" not in one


def test_only_the_same_command_on_the_same_commit_replaces_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times(words: str, commit: str, *rows: Row) -> list[float]:
        monkeypatch.setattr(sys, "argv", [STREAM, *words.split()])
        return [one["ms_per_frame"] for one in stored(tmp_path, list(rows), commit)]

    assert times("--lines 1", "a", row(1.0), row(2.0, "line")) == [1.0, 2.0]
    assert times("--lines 1", "b", row(3.0)) == [1.0, 2.0, 3.0]
    assert times("--lines 2", "b", row(4.0)) == [1.0, 2.0, 3.0, 4.0]
    assert times("--lines 1", "b", row(5.0, precision="int8")) == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert times("--lines 1 --out /elsewhere", "a", row(6.0)) == [2.0, 3.0, 4.0, 5.0, 6.0]


def test_the_newest_day_of_each_table_and_kind_of_weights_is_shown() -> None:
    rows = [
        {"table": table, "model": "tiny", "precision": precision, "date": date}
        for table, precision, date in (
            ("line", "float32", "2026-01-02"),
            ("line", "float32", "2026-01-03"),
            ("line", "int8", "2026-01-01"),
            ("frames", "float32", "2026-01-01"),
        )
    ]
    assert latest(rows) == rows[1:]


@pytest.mark.parametrize(
    "words, said",
    [
        (["--checkpoints", "folder/ck", "--repeats", "3"], "--repeats 3"),
        (["--out=folder/x", "--lines", "1", "--commit", "abc"], "--lines 1"),
        ([], ""),
    ],
)
def test_a_command_names_no_folder_of_the_machine(words: list[str], said: str) -> None:
    assert command_of([STREAM, *words]) == f"python -m lab.benchmarks.stream {said}".rstrip()
    package = str(ROOT / "lab" / "benchmarks" / "quality" / "__main__.py")
    assert command_of([package, *words]) == f"python -m lab.benchmarks.quality {said}".rstrip()


def test_a_commit_is_found_where_there_is_one(tmp_path: Path) -> None:
    assert find_commit(tmp_path) == UNKNOWN
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    commit = find_commit(tmp_path)
    assert re.fullmatch("[0-9a-f]{7}", commit)
    (tmp_path / RESULTS).mkdir(parents=True)
    (tmp_path / RESULTS / "machine.json").touch()
    assert find_commit(tmp_path) == commit, "another table's rows are no change"
    (tmp_path / "new.py").touch()
    assert find_commit(tmp_path) == f"{commit}-dirty"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("nvidia-h?00*.json")), ids=lambda path: path.stem)
def test_every_row_has_a_day_and_no_figure_twice(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = document.get("rows", [])
    assert all("details" not in one for one in rows)
    assert "date" in document or (rows and all(one["date"] for one in rows))


def test_rows_that_came_home_are_added(tmp_path: Path) -> None:
    there, here = tmp_path / "out" / "gpu.json", tmp_path / "results" / "gpu.json"
    old, new = (
        {"table": "many", "model": "0.6B", "precision": "bf16", "commit": c, "command": "x", "date": DAY}
        for c in "ab"
    )
    for path, rows in ((here, [old]), (there, [new])):
        path.parent.mkdir()
        path.write_text(json.dumps({"machine": "GPU", "versions": {}, "rows": rows}))
    for _ in range(2):  # the second time they replace themselves
        results.main([str(there), "--into", str(here.parent)])
        assert json.loads(here.read_text())["rows"] == [old, new]


def test_rows_that_do_not_say_their_origin_get_it_from_the_command(tmp_path: Path) -> None:
    there = tmp_path / "alignment.json"
    row = {"table": "ask", "model": "0.6B", "what": "frame", "us": 1.0}
    there.write_text(
        json.dumps({"machine": "NVIDIA H200", "versions": {}, "failures": ["one"], "rows": [row]})
    )
    into = ["--into", str(tmp_path / "results")]
    with pytest.raises(SystemExit):
        results.main([str(there), *into, "--commit", "a"])
    results.main([str(there), *into, "--commit", "a", "--date", DAY])
    document = json.loads((tmp_path / "results" / "nvidia-h200.json").read_text())
    assert document == {
        "machine": "NVIDIA H200",
        "versions": {},
        "rows": [{**row, "commit": "a", "date": DAY}],
    }

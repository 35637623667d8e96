"""Every table from its command line, on tiny checkpoints: a dry run that checks arithmetic, not speed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.benchmarks import batches, codec, frames, prefill, training
from lab.benchmarks.common import NamedEngine, decode_fixed, load_muted, parser
from lab.benchmarks.frames import fit_line
from lab.benchmarks.results import Row, markdown

KEYS = {
    "table", "system", "model", "engine", "precision", "seq_groups", "batch", "ms_per_frame",
    "audio_seconds_per_second", "rtf", "commit", "date", "command",
}  # fmt: skip


def rows_of(module: Any, out: Path, *more: str, runs: int = 1) -> list[dict[str, Any]]:
    """Run a table, and check what all its rows have."""
    options = [
        "--shape",
        "tiny",
        "--device",
        "cpu",
        "--frames",
        "5",
        "--repeats",
        "1",
        "--out",
        str(out),
        *more,
    ]
    for _ in range(runs):
        module.main(options)
    [path] = out.glob("*.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert {"machine", "versions"} <= document.keys()
    for row in document["rows"]:
        assert row.keys() >= KEYS and row["model"] == "tiny"
    return document["rows"]


@pytest.mark.slow
def test_frames_has_upstream_and_both_engines_with_their_lines(tmp_path: Path) -> None:
    rows = rows_of(frames, tmp_path, "--precision", "fp32")
    assert [(row["engine"], row["seq_groups"]) for row in rows] == [
        ("generate", 15),
        *((engine, groups) for engine in ("eager", "graph") for groups in (15, 7, 5, 3, 1)),
    ]
    graph = [row for row in rows if row["engine"] == "graph"]
    a, b = fit_line([(row["seq_groups"], row["ms_per_frame"]) for row in graph])
    assert graph[0]["fit_a_ms"] == pytest.approx(a, abs=0.01) and graph[0]["fit_b_ms"] == pytest.approx(b, abs=0.01)
    assert rows[1]["predictor_ms"] is not None and graph[0]["predictor_ms"] is None


def test_frames_can_stop_after_the_comparison_with_upstream(tmp_path: Path, capsys, monkeypatch) -> None:
    given = ["--shape", "tiny-1.7B", "--device", "cpu", "--frames", "3", "--precision", "fp32", "--check"]
    frames.main([*given, "--out", str(tmp_path)])
    lines = [line for line in capsys.readouterr().out.splitlines() if "SEQ_GROUPS=15" in line]
    assert [line.split("the ")[1].split("'s")[0] for line in lines] == [
        "eager engine", "eager engine (greedy)", "graph engine (greedy)",
    ]  # fmt: skip
    assert all("codes equal upstream's over 3 frames" in line for line in lines)
    assert not list(tmp_path.iterdir())
    wrong = lambda self, *_: torch.zeros(3, 16, dtype=torch.int64)  # noqa: E731
    monkeypatch.setattr(frames.FrameBench, "replayed", wrong)
    with pytest.raises(SystemExit, match="differ from upstream's"):
        frames.main([*given, "--out", str(tmp_path)])
    assert "the graph engine (greedy) diverges from upstream after 0 of 3 frames" in capsys.readouterr().out


def test_training_has_a_row_for_each_batch(tmp_path: Path) -> None:
    rows = rows_of(training, tmp_path, "--batches", "1", "2", "--steps", "3", "--lines", "12", "--seconds", "1")
    assert [(row["table"], row["batch"]) for row in rows] == [("training", 1), ("training", 2)]
    assert all(row["update_ms"] > 0 and row["peak_gb"] is None for row in rows)


@pytest.mark.slow
def test_batches_has_both_tables_with_and_without_the_codec(tmp_path: Path) -> None:
    rows = rows_of(batches, tmp_path, "--batches", "1", "3", "--refill", "1", "3", "--seq-groups", "2")
    assert [(row["table"], row["batch"]) for row in rows] == [
        ("batches", 1), ("batches", 3), ("refill", 1), ("refill", 3),
    ]  # fmt: skip
    assert all(0 < row["audio_seconds_per_second_with_codec"] < row["audio_seconds_per_second"] for row in rows)


def test_prefill_is_until_the_host_and_until_the_device_is_done(tmp_path: Path) -> None:
    given = ["--shape", "tiny", "--device", "cpu", "--frames", "5", "--repeats", "1", "--batches", "1", "3"]
    prefill.main([*given, "--out", str(tmp_path)])
    [path] = tmp_path.glob("*.json")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [(row["table"], row["engine"], row["batch"]) for row in rows] == [
        ("prefill", "graph", 1), ("prefill", "graph", 3),
    ]  # fmt: skip
    assert all(row.keys() >= KEYS and 0 < row["host_ms"] <= row["ms"] for row in rows)


def test_codec_compares_its_variants_with_upstream(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(codec, "BUDGET_S", 0.0)  # as few runs as there may be
    words = "--shape tiny --device cpu --cases 1x6,2x9 --only upstream-fp32,torch --out"
    codec.main([*words.split(), str(tmp_path)])
    [path] = tmp_path.glob("*.json")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert [(row["engine"], row["case"]) for row in rows] == [
        ("upstream-fp32", "1x6"), ("upstream-fp32", "2x9"), ("torch", "1x6"), ("torch", "2x9"),
    ]  # fmt: skip
    assert all(row.keys() >= KEYS for row in rows) and all(row["snr_db"] > 10 for row in rows[2:])


def test_a_line_that_ends_early_is_no_measurement() -> None:
    model = load_muted(parser("x", 1, 1).parse_args(["--shape", "tiny", "--device", "cpu"]))
    fifth = decode_fixed(NamedEngine("graph"), model, [9], 1)[0].codes[4, 0]
    model.config.talker_config.codec_eos_token_id = int(fifth)
    with pytest.raises(RuntimeError, match="frames were requested"):
        decode_fixed(NamedEngine("graph"), model, [9], 1)


def test_the_table_shows_details_and_how_much_faster_a_row_is() -> None:
    row = Row("t", "morph", "tiny", "graph", "float32", 5, 1, 10.0, 8.0, 0.125, {"x_ms": 1.5})
    slow = Row("t", "upstream", "tiny", "generate", "float32", 15, 1, 40.0, 2.0, 0.5)
    assert markdown([slow, row]).splitlines()[-2:] == [
        "| upstream | generate | float32 | 15 | 1 | 40.00 | 2.0 | 0.5000 | 1.00 |  |",
        "| morph | graph | float32 | 5 | 1 | 10.00 | 8.0 | 0.1250 | 4.00 | 1.50 |",
    ]

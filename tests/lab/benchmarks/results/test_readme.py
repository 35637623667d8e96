"""The tables of README.md and docs/ hold the figures of lab/benchmarks/results."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]
RESULTS = ROOT / "lab" / "benchmarks" / "results"
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
ROWS = {
    "exact": ("crossbar", 15), "crossbar, stock heads": ("crossbar", None), "trained tail": ("trained", None),
    "lossless, with tails": ("lossless-trained", 1), "upstream, other samples": ("upstream", 15),
    "control: last ten groups zeroed": ("tail-zeroed", 5), "control: last ten groups random": ("tail-random", 5),
}  # fmt: skip
# Columns of differences from exact speech: the metric, its printed scale, and whether lower is worse.
CHANGES = {3: ("wer", 100, False), 4: ("similarity", 1, True), 5: ("mos", 1, True)}


def read_rows(name: str) -> list[dict[str, Any]]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]


def table(page: str, *titles: str) -> list[list[str]]:
    """Return the cells of the page's only table with these titles."""
    lines = [line.strip() for line in (ROOT / page).read_text(encoding="utf-8").splitlines()]
    title = f"| {' | '.join(titles)} |".replace("  ", " ")
    [start] = [index for index, line in enumerate(lines) if line == title]
    end = next(index for index in range(start, len(lines)) if not lines[index].startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start + 2 : end]]


def check_cell(cell: str, *values: float | None) -> None:
    """Check that a cell holds these values, rounded to its digits; None stands for an empty cell."""
    printed = NUMBER.findall(re.sub(r"(?<=\d)-", " ", cell.replace(",", "")))
    assert len(printed) == len([value for value in values if value is not None]), (cell, values)
    for text, value in zip(printed, [value for value in values if value is not None], strict=True):
        digits = len(text.partition(".")[2])
        assert abs(float(text) - value) <= 0.5001 * 10**-digits, (cell, values)


def check_change(cell: str, change: list[float], scale: float, less_is_worse: bool) -> None:
    """Check a value with its interval: bold if all of it is worse, and no bound printed as 0 if 0 is outside."""
    check_cell(cell, *(scale * value for value in change))
    _, low, high = change
    assert ("**" in cell) == (high < 0 if less_is_worse else low > 0), cell
    assert low <= 0 <= high or all(float(number) != 0 for number in NUMBER.findall(cell)), cell


def check_voice_table(page: str, *before: str) -> set[tuple[str, int]]:
    """Check a table of the quality study, from the columns after ``before``; return its strategies and SEQ_GROUPS."""
    rows, timed = (
        {(row["strategy"], row["seq_groups"]): row for row in read_rows(name)}
        for name in ("quality_demo_50", "quality_demo_50_2026_11_25")
    )
    titles = ("", "S", "WER %", "WER, points", "speaker similarity", "DistillMOS", "captured, ms per frame")
    cells = [line[len(before) :] for line in table(page, *before, *titles)]
    label, seen = "", set()
    for line in cells:
        label = line[0] or label
        strategy, groups = ROWS[label]
        row = rows[strategy, groups or int(line[1])]
        seen.add((strategy, row["seq_groups"]))
        check_cell(line[2], 100 * row["wer"][0])
        for column, (metric, scale, less_is_worse) in CHANGES.items():
            if label == "exact":
                check_cell(line[column], None if metric == "wer" else row[metric][0])
            else:
                check_change(line[column], row["against_exact"][metric], scale, less_is_worse)
        # Two lines were timed, of the same weights: the file's bounds are their range, and no interval.
        row = timed[strategy, row["seq_groups"]]
        check_cell(line[6], row["ms_per_frame"][0] if row["engine"] == "graph" else None)
    assert len(seen) == len(cells)
    return seen


def test_what_decoding_does_to_the_voice() -> None:
    shown = check_voice_table("docs/log/knob.md")
    assert {("crossbar", 11), ("upstream", 15)} <= shown, "the table must also show rows that are off by chance"
    assert len(check_voice_table("README.md")) == 4
    assert check_voice_table("docs/knob.md", "you want") < shown


def value(name: str, field: str, **wanted: Any) -> float | None:
    """Return a field of a result file's row with these values, the newest one; None if there is no such row."""
    found = [row for row in read_rows(name) if all(row.get(key) == one for key, one in wanted.items())]
    newest = [row for row in found if row["date"] == max(row["date"] for row in found)]
    assert len(newest) <= 1, wanted
    return newest[0][field] if newest else None


FRAMES = {
    "upstream": ("upstream", "generate", "bfloat16"), "faster": ("faster-qwen3-tts", "generate", "bfloat16"),
    "eager": ("morph", "eager", "bfloat16"), "torch": ("morph", "graph", "bfloat16"),
    "kernels": ("morph", "kernels", "bfloat16"), "int8": ("morph", "kernels", "int8"),
}  # fmt: skip


@pytest.mark.parametrize(
    "page, titles, systems",
    [
        (
            "docs/benchmarks.md",
            ("", "0.6B, S=15", "S=7", "S=5", "S=3", "S=1", "1.7B, S=15", "S=5"),
            ("upstream", "faster", "eager", "torch", "kernels", "int8"),
        ),
        (
            "README.md",
            ("ms per frame", "0.6B, S=15", "0.6B, S=5", "1.7B, S=15", "1.7B, S=5"),
            ("upstream", "faster", "eager", "kernels"),
        ),
    ],
)
def test_time_of_a_frame_on_a_gpu(page: str, titles: tuple[str, ...], systems: tuple[str, ...]) -> None:
    model, columns = "", []
    for title in titles[1:]:
        model = title.split(",")[0] if "," in title else model
        columns.append((model, int(title.split("=")[1])))
    for line, key in zip(table(page, *titles), systems, strict=True):
        system, engine, precision = FRAMES[key]
        for cell, (model, groups) in zip(line[1:], columns, strict=True):
            kind = {"system": system, "engine": engine, "precision": precision, "model": model}
            found = value("nvidia-h200", "ms_per_frame", table="frames", seq_groups=groups, **kind)
            check_cell(cell, found)

"""The report of a run: markdown, an HTML page with players, and rows as JSON."""

from __future__ import annotations

import base64
import datetime
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...judges.stats import Figure
from ..results import installed_versions
from .conditions import CONTROLS
from .figures import METRICS, Metric, Row, find_power
from .folder import WAVS, RunFolder, RunInfo, write_json

PLAYED_LINES = 3
STYLE = (
    "body{font:15px sans-serif;margin:2em auto;max-width:110em}table{border-collapse:collapse}div{overflow-x:auto}"
    "td,th{border:1px solid #ccc;padding:.2em .5em;text-align:right;white-space:nowrap}svg{max-width:100%;height:auto}"
    "td:first-child,th:first-child{text-align:left}"
)


@dataclass(frozen=True)
class Table:
    """Titles and cells; the first two columns are the row's name."""

    titles: list[str]
    cells: list[list[str]]


def show(figure: Figure | None, metric: Metric, signed: bool = False) -> str:
    """Format a figure with its interval; "" for None."""
    if figure is None:
        return ""
    numbers = [number * metric.scale for number in (figure.value, figure.low, figure.high)]
    sign, digits = "+" if signed else "", needed_digits(numbers[1], numbers[2], metric.digits)
    value, low, high = (f"{number:{sign}.{digits}f}" for number in numbers)
    return f"{value} [{low}, {high}]"


def needed_digits(low: float, high: float, least: int) -> int:
    """Return the digits to print: ``least``, or more if an interval that excludes 0 would otherwise print as 0."""
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    digits = least
    while nearest > 0 and float(f"{nearest:.{digits}f}") == 0:
        digits += 1
    return digits


def _name(row: Row) -> list[str]:
    return [row.condition.strategy.name, str(row.condition.seq_groups)]


def figures_table(rows: Sequence[Row]) -> Table:
    """Every row's figures."""
    titles = ["strategy", "SEQ_GROUPS", *(metric.title for metric in METRICS)]
    cells = [[*_name(row), *(show(row.figures[metric.name], metric) for metric in METRICS)] for row in rows]
    return Table(titles, cells)


def changes_table(rows: Sequence[Row]) -> Table:
    """Every row's paired differences from exact, and its verdict against the bars."""
    titles = ["strategy", "SEQ_GROUPS", *(metric.title for metric in METRICS)]
    cells = []
    for row in rows:
        if not row.condition.is_exact:
            columns = []
            for metric in METRICS:
                change = row.changes[metric.name]
                verdict = metric.verdict(change) if change else ""
                columns.append(show(change, metric, signed=True) + (f" {verdict}" if verdict else ""))
            cells.append([*_name(row), *columns])
    return Table(titles, cells)


def describe_power(power: dict[str, dict[str, bool]]) -> list[str]:
    """Describe what the controls say about each metric, one sentence each."""
    if not power:
        return ["Nothing was judged, so the controls say nothing."]
    said = []
    for metric in METRICS:
        detected = power.get(metric.name)
        if detected is None:
            continue
        missed = [control for control, detects in detected.items() if not detects]
        if missed:
            said.append(
                f"- **{metric.title} has no power here**: it cannot distinguish {' and '.join(missed)} from exact "
                "speech. Finding no difference with it proves nothing."
            )
        else:
            said.append(f"- {metric.title} distinguishes {' and '.join(detected)} from exact speech.")
    return said


def _bar(metric: Metric) -> str:
    unit = " percentage points" if metric.scale == 100 else ""
    return f"{metric.title.removesuffix(' %')} {(metric.bar or 0) * metric.scale:g}{unit}"


def blocks(about: RunInfo, rows: Sequence[Row]) -> list[str | Table]:
    """Return the report's sections in order: headings (with #), paragraphs and tables."""
    bars = ", ".join(_bar(metric) for metric in METRICS if metric.bar is not None)
    explained = [f"- {row.condition.strategy.name}: {row.condition.strategy.about}." for row in rows]
    return [
        f"# What decoding does to the voice: {about.checkpoint}",
        f"{about.model}. {len(about.tasks)} lines, {len({task.voice for task in about.tasks})} voices "
        f"({about.voices}). Same lines, voices and seeds in every row; 95 % intervals by bootstrap over lines in "
        f"brackets. Spoken on {about.machine or 'a machine that the run does not name'}.",
        figures_table(rows),
        "Judges: whisper-base (English), Resemblyzer, DistillMOS, DNSMOS; none uses anything above 8 kHz. Similarity "
        "is 0 for a line without speech.",
        "## Against exact (crossbar at 15): paired differences",
        changes_table(rows),
        f"The bars: no worse than exact by more than {bars}. *within*: the whole interval is; *beyond*: none of it is; "
        "*open*: more lines are needed. Every row is compared with the same exact speech, and 1 in 20 of the 95 % "
        "intervals misses the true value by chance: a single row that differs between rows that do not is no finding.",
        "## Controls",
        "A metric detects a control if the interval of its paired difference is entirely on the worse side of 0.\n\n"
        + "\n".join(describe_power(find_power(rows, CONTROLS))),
        "## What the rows are",
        "\n".join(dict.fromkeys(explained)),
    ]


def to_markdown(parts: Sequence[str | Table]) -> str:
    """Format the report as markdown."""
    shown = []
    for part in parts:
        if isinstance(part, str):
            shown.append(part)
        elif part.cells:
            lines = [part.titles, ["---", *["--:"] * (len(part.titles) - 1)], *part.cells]
            shown.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(shown) + "\n"


def to_html(parts: Sequence[str | Table], players: str) -> str:
    """Format the report as one self-contained page."""
    shown = [_html_table(part) if isinstance(part, Table) else _html_text(part) for part in parts]
    page = "".join(f"<div>{one}</div>" for one in (*shown, players))
    return f"<!doctype html><meta charset=utf-8><title>Quality</title><style>{STYLE}</style>{page}"


def _html_text(text: str) -> str:
    """Format a heading, or a paragraph with bold text and list items."""
    level = len(text) - len(text.lstrip("#"))
    if level:
        return f"<h{level}>{html.escape(text[level:])}</h{level}>"
    lines = [f"&bull; {line[2:]}" if line.startswith("- ") else line for line in html.escape(text).split("\n")]
    marked = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", "<br>".join(lines))
    marked = re.sub(r"\*(.+?)\*", r"<i>\1</i>", marked)
    return f"<p>{marked}</p>"


def _html_table(table: Table) -> str:
    return f"<table>{_row('th', table.titles)}{''.join(_row('td', cells) for cells in table.cells)}</table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def players(folder: RunFolder, about: RunInfo, rows: Sequence[Row]) -> str:
    """Return players for the first lines in every condition (FLAC, lossless)."""
    import soundfile

    shown = ["<h2>Listen</h2>"]
    for line, task in enumerate(about.tasks[:PLAYED_LINES]):
        cells = []
        for row in rows:
            path = folder.path(WAVS, row.condition.key, line, ".wav")
            if path.is_file():
                sound = io.BytesIO()
                soundfile.write(sound, *soundfile.read(path), format="FLAC")
                data = base64.b64encode(sound.getvalue()).decode()
                player = f'<audio controls preload=none src="data:audio/flac;base64,{data}"></audio>'
                cells.append(f"<tr><td>{html.escape(row.condition.key)}</td><td>{player}</td></tr>")
        shown.append(f"<p>{html.escape(task.voice)}: {html.escape(task.text)}</p><table>{''.join(cells)}</table>")
    return "".join(shown)


def to_json(about: RunInfo, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the rows as JSON: each figure as [value, low, high], or null."""
    return {
        "checkpoint": about.checkpoint,
        "weights": about.weights,
        "model": about.model,
        "sampling": about.sampling,
        "machine": about.machine,
        "versions": installed_versions(),
        "date": datetime.date.today().isoformat(),
        "lines": len(about.tasks),
        "voices": len({task.voice for task in about.tasks}),
        "power": find_power(rows, CONTROLS),
        "rows": [_json_row(row) for row in rows],
    }


def _json_row(row: Row) -> dict[str, Any]:
    return {
        "strategy": row.condition.strategy.name,
        "seq_groups": row.condition.seq_groups,
        **{name: triple(figure) for name, figure in row.figures.items()},
        "against_exact": {name: triple(change) for name, change in row.changes.items()},
    }


def triple(figure: Figure | None) -> list[float] | None:
    """Return [value, low, high]; or None."""
    return None if figure is None else [round(one, 5) for one in (figure.value, figure.low, figure.high)]


def write_report(folder: RunFolder, about: RunInfo, rows: Sequence[Row]) -> tuple[str, Path]:
    """Write quality.md, quality.html and the rows into the folder; return the markdown and the path of the rows."""
    parts = blocks(about, rows)
    markdown, path = to_markdown(parts), folder.root / f"quality_{about.checkpoint}.json"
    (folder.root / "quality.md").write_text(markdown, encoding="utf-8")
    page = to_html(parts, players(folder, about, rows))
    (folder.root / "quality.html").write_text(page, encoding="utf-8")
    write_json(path, to_json(about, rows))
    return markdown, path

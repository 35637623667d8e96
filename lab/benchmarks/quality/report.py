"""The report of a run: markdown, an HTML page with players, the plot, and rows as JSON."""

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

from qwen3_tts_morph.morph.study.plot import Mark, Panel, plot_tradeoff

from ...judges.stats import FEWEST_TIMES, Figure, Median
from ..results import installed_versions
from .figures import METRICS, Metric, Row, find_power
from .folder import TIMES, WAVS, About, RunFolder, read_json, write_json
from .registry import CONTROLS
from .timing import BATCH, BATCHES

PLAYED_LINES = 3
STYLE = (
    "body{font:15px sans-serif;margin:2em auto;max-width:110em}table{border-collapse:collapse}div{overflow-x:auto}"
    "td,th{border:1px solid #ccc;padding:.2em .5em;text-align:right;white-space:nowrap}svg{max-width:100%;height:auto}"
    "td:first-child,th:first-child{text-align:left}"
)
DISTANCE = Metric("distance", "distance", False, 1, 3)
TIME = Metric("ms", "ms/frame", False, 1, 1)
PASSES = Metric("passes", "passes", False, 1, 2)


@dataclass(frozen=True)
class Table:
    """Titles and cells; the first two columns are the row's name."""

    titles: list[str]
    cells: list[list[str]]


def show(figure: Figure | Median | None, metric: Metric, signed: bool = False) -> str:
    """Format a figure with its interval, if it has one; "" for None."""
    if figure is None:
        return ""
    if figure.low is None or figure.high is None:
        return f"{figure.value * metric.scale:{'+' if signed else ''}.{metric.digits}f}"
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
    heads = "" if row.condition.strategy.heads == "stock" else f" ({row.condition.strategy.heads} heads)"
    return [row.condition.strategy.name + heads, str(row.condition.seq_groups)]


def figures_table(rows: Sequence[Row]) -> Table:
    """Every row's figures; if any row has graph-engine times, a second column has the eager time of all rows."""
    titles = [
        "strategy",
        "SEQ_GROUPS",
        *(metric.title for metric in METRICS),
        "distance",
        "ms/frame",
        "engine",
    ]
    mixed = any("graph" in row.ms for row in rows)
    cells = [
        [
            *_name(row),
            *(show(row.figures[metric.name], metric) for metric in METRICS),
            show(row.distance, DISTANCE),
            show(row.ms_per_frame, TIME),
            row.engine or "",
            *([show(row.ms.get("eager"), TIME)] if mixed else []),
        ]
        for row in rows
    ]
    return Table([*titles, *(["eager ms/frame"] if mixed else [])], cells)


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


def distances_table(rows: Sequence[Row]) -> Table:
    """Each group's distance from exact."""
    titles = ["strategy", "SEQ_GROUPS", *map(str, range(1, 16))]
    cells = [
        [*_name(row), *(f"{value:.3f}" for value in row.group_distances)]
        for row in rows
        if row.group_distances is not None
    ]
    return Table(titles, cells)


def passes_table(rows: Sequence[Row]) -> Table:
    """Rows in which the number of passes varies, and exact decoding; empty if there are none."""
    titles = ["strategy", "SEQ_GROUPS"]
    for batch in ("batch 1", f"batch {BATCH}"):
        titles += [f"passes, {batch}", f"eager ms/frame, {batch}"]
    cells = [
        [
            *_name(row),
            show(row.passes, PASSES),
            show(row.ms.get("eager"), TIME),
            show(row.batch.passes, PASSES) if row.batch else "",
            show(row.batch.ms, TIME) if row.batch else "",
        ]
        for row in rows
        if row.passes or row.batch
    ]
    return Table(titles, cells)


def _passes_blocks(rows: Sequence[Row]) -> list[str | Table]:
    """Return the section about passes; empty if none were counted."""
    table = passes_table(rows)
    explained = (
        "Exact decoding (crossbar at 15) takes 15. A batch takes the passes of the line that needs most, including "
        f"lines that have ended; its ms/frame is for one frame of all {BATCH} lines, the median of {BATCHES} "
        "batches. If the run has too few lines, they are repeated with other seeds."
    )
    return ["## Predictor passes per frame, where they vary", table, explained] if table.cells else []


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
    """Describe a metric's bar."""
    unit = " percentage points" if metric.scale == 100 else ""
    return f"{metric.title.removesuffix(' %')} {(metric.bar or 0) * metric.scale:g}{unit}"


def blocks(about: About, rows: Sequence[Row], machine: str) -> list[str | Table]:
    """Return the report's sections in order: headings (with #), paragraphs and tables."""
    bars = ", ".join(_bar(metric) for metric in METRICS if metric.bar is not None)
    explained = [f"- {row.condition.strategy.name}: {row.condition.strategy.about}." for row in rows]
    return [
        f"# What decoding does to the voice: {about.checkpoint}",
        f"{about.model}. {len(about.tasks)} lines, {len({task.voice for task in about.tasks})} voices "
        f"({about.voices}). Same lines, voices and seeds in every row; 95 % intervals by bootstrap over lines in "
        f"brackets. Times on {machine}, batch 1, including the prompt, excluding the codec: medians of "
        f"{_timed_lines(rows)} lines{_why_no_interval(rows)}. On a GPU the eager engine is limited by Python on "
        "the host, so its times vary between rows with equal work.",
        figures_table(rows),
        "Judges: whisper-base (English), Resemblyzer, DistillMOS, DNSMOS; none uses anything above 8 kHz. Similarity "
        "is 0 for a line without speech. Distance: total variation from the exact distribution (0 equal, 1 disjoint), "
        "mean over groups 1-15, on exact codes.",
        "## Against exact (crossbar at 15): paired differences",
        changes_table(rows),
        f"The bars: no worse than exact by more than {bars}. *within*: the whole interval is; *beyond*: none of it is; "
        "*open*: more lines are needed. Every row is compared with the same exact speech, and 1 in 20 of the 95 % "
        "intervals misses the true value by chance: a single row that differs between rows that do not is no finding.",
        "## Controls",
        "A metric detects a control if the interval of its paired difference is entirely on the worse side of 0.\n\n"
        + "\n".join(describe_power(find_power(rows, CONTROLS))),
        "## Distance by group",
        distances_table(rows),
        *_passes_blocks(rows),
        "## What the rows are",
        "\n".join(dict.fromkeys(explained)),
    ]


def _timed_lines(rows: Sequence[Row]) -> int:
    """Return how many lines were timed per row; 0 if none."""
    return max((figure.lines for row in rows for figure in row.ms.values()), default=0)


def _why_no_interval(rows: Sequence[Row]) -> str:
    """Return what to say where the times have no intervals."""
    return ", too few for an interval" if 0 < _timed_lines(rows) < FEWEST_TIMES else ""


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


def to_html(parts: Sequence[str | Table], plot: str, players: str) -> str:
    """Format the report as one self-contained page."""
    shown = [_html_table(part) if isinstance(part, Table) else _html_text(part) for part in parts]
    page = "".join(f"<div>{one}</div>" for one in (*shown[:4], plot, *shown[4:], players))
    return f"<!doctype html><meta charset=utf-8><title>Quality</title><style>{STYLE}</style>{page}"


def _html_text(text: str) -> str:
    """Format a heading, or a paragraph with bold text and list items."""
    level = len(text) - len(text.lstrip("#"))
    if level:
        return f"<h{level}>{html.escape(text[level:])}</h{level}>"
    lines = [
        f"&bull; {line[2:]}" if line.startswith("- ") else line for line in html.escape(text).split("\n")
    ]
    marked = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", "<br>".join(lines))
    marked = re.sub(r"\*(.+?)\*", r"<i>\1</i>", marked)
    return f"<p>{marked}</p>"


def _html_table(table: Table) -> str:
    return f"<table>{_row('th', table.titles)}{''.join(_row('td', cells) for cells in table.cells)}</table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def players(folder: RunFolder, about: About, rows: Sequence[Row]) -> str:
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
        shown.append(
            f"<p>{html.escape(task.voice)}: {html.escape(task.text)}</p><table>{''.join(cells)}</table>"
        )
    return "".join(shown)


def plot_rows(rows: Sequence[Row], title: str) -> Any:
    """Plot every metric against time; a row without a time (a control) is a horizontal line to compare with."""
    names = [_name(row)[0] for row in rows]
    panels, mixed = [], len({row.engine for row in rows if row.engine}) > 1
    figures = {metric.name: metric for metric in (*METRICS, DISTANCE) if metric.name not in ("cer", "ended")}
    for name, metric in figures.items():
        panel = Panel(metric.title, {}, {})
        for row in sorted(rows, key=lambda row: (names.index(_name(row)[0]), row.condition.seq_groups)):
            figure = row.distance if name == "distance" else row.figures[name]
            if figure is None:
                continue
            value, low, high = (part * metric.scale for part in (figure.value, figure.low, figure.high))
            if row.ms_per_frame is None:
                panel.levels[row.condition.strategy.name] = value
                continue
            mark = Mark(row.ms_per_frame.value, value, low, high, f"S={row.condition.seq_groups}")
            series = _name(row)[0] + (f", {row.engine}" if mixed else "")
            panel.series.setdefault(series, []).append(mark)
        if panel.series:
            panels.append(panel)
    return plot_tradeoff(panels, title) if panels else None


def to_json(about: About, rows: Sequence[Row], machine: str) -> dict[str, Any]:
    """Return the rows as JSON: each figure as [value, low, high], where low and high may be null."""
    return {
        "checkpoint": about.checkpoint,
        "weights": about.weights,
        "model": about.model,
        "sampling": about.sampling,
        "machine": machine,
        "versions": installed_versions(),
        "date": datetime.date.today().isoformat(),
        "lines": len(about.tasks),
        "timed_lines": _timed_lines(rows),
        "voices": len({task.voice for task in about.tasks}),
        "power": find_power(rows, CONTROLS),
        "rows": [_json_row(row) for row in rows],
    }


def _json_row(row: Row) -> dict[str, Any]:
    strategy = row.condition.strategy
    return {
        "strategy": strategy.name,
        "seq_groups": row.condition.seq_groups,
        "heads": strategy.heads,
        **{name: triple(figure) for name, figure in row.figures.items()},
        "ms_per_frame": triple(row.ms_per_frame),
        "engine": row.engine,
        "eager_ms_per_frame": triple(row.ms.get("eager")),
        "passes": triple(row.passes),
        "passes_batch16": triple(row.batch.passes if row.batch else None),
        "ms_per_frame_batch16": triple(row.batch.ms if row.batch else None),
        "distance": triple(row.distance),
        "group_distances": row.group_distances and [round(value, 5) for value in row.group_distances],
        "against_exact": {name: triple(change) for name, change in row.changes.items()},
    }


def triple(figure: Figure | Median | None) -> list[float | None] | None:
    """Return [value, low, high], the last two None where there is no interval; or None."""
    if figure is None:
        return None
    return [value if value is None else round(value, 5) for value in (figure.value, figure.low, figure.high)]


def write_report(folder: RunFolder, about: About, rows: Sequence[Row], table: str) -> tuple[str, Path]:
    """Write the report (.md, .html), the plot (.svg, .png) and the rows (.json) into the folder.

    ``table`` is the base name of the files: "quality" or "ablation". Returns the markdown and the path of the JSON.
    """
    kept = [read_json(folder.root / TIMES / f"{row.condition.key}.json") for row in rows]
    machine = ", ".join(dict.fromkeys(one["machine"] for one in kept if one)) or "no machine"
    parts, plot = blocks(about, rows, machine), ""
    figure = plot_rows(rows, f"{about.checkpoint}, {len(about.tasks)} lines: quality against time")
    if figure is not None:
        figure.savefig(folder.root / f"{table}.png")
        figure.savefig(folder.root / f"{table}.svg")
        svg = (folder.root / f"{table}.svg").read_text(encoding="utf-8")
        plot = svg[svg.index("<svg") :]
    markdown = to_markdown(
        [*parts[:4], *([f"![quality against time]({table}.svg)"] if plot else []), *parts[4:]]
    )
    (folder.root / f"{table}.md").write_text(markdown, encoding="utf-8")
    page = to_html(parts, plot, players(folder, about, rows))
    (folder.root / f"{table}.html").write_text(page, encoding="utf-8")
    path = folder.root / f"{table}_{about.checkpoint}.json"
    write_json(path, to_json(about, rows, machine))
    return markdown, path

"""The README's plot of stored measurements: ms per frame over SEQ_GROUPS, and audio per second over the batch size.

    python -m lab.benchmarks.plot lab/benchmarks/results/nvidia-h200.json --shape 0.6B --out speed.svg

Left, from the table "frames": our engines as lines, dashed with INT8 weights, upstream and peers as dots (they always
run 15 groups). Right, from "batches" with full weights: codes only, and dashed with waveforms. A table that the file
does not contain is left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .common import DEMO
from .results import is_int8, latest

Row = dict[str, Any]
NAMES = {
    "eager": "eager: upstream's layers",
    "graph": "graph: torch operations",
    "kernels": "graph: Triton kernels",
}
COLORS = {"eager": "#7f7f7f", "graph": "#1f77b4", "kernels": "#d62728"}
OTHERS = ("#000000", "#2ca02c", "#9467bd", "#ff7f0e")
REAL_TIME_MS = 80


def rows_of(document: dict[str, Any], table: str, shape: str) -> list[Row]:
    """Return a table's newest rows of one model."""
    own = [row for row in document["rows"] if row["table"] == table and row["model"] == shape]
    return [dict(row) for row in latest(own)]


def draw_frames(axes: Any, rows: Sequence[Row]) -> None:
    """Plot ms per frame over SEQ_GROUPS, on a logarithmic scale."""
    ours = [row for row in rows if row["system"] == "morph"]
    for engine, precision in dict.fromkeys((row["engine"], row["precision"]) for row in ours):
        chosen = [row for row in ours if (row["engine"], row["precision"]) == (engine, precision)]
        points = sorted((row["seq_groups"], row["ms_per_frame"]) for row in chosen)
        style, label = "o-", NAMES.get(engine, engine)
        if is_int8(precision):
            style, label = "o--", f"{label}, {precision}"
        axes.plot(*zip(*points, strict=True), style, color=COLORS.get(engine), label=label)
    others = [row for row in rows if row["system"] != "morph"]
    for row, color in zip(others, OTHERS, strict=False):
        axes.plot(row["seq_groups"], row["ms_per_frame"], "D", color=color, label=row["system"])
    axes.axhline(REAL_TIME_MS, color="#7f7f7f", linestyle=":", linewidth=1)
    axes.annotate("real time", (1, REAL_TIME_MS), xytext=(0, 3), textcoords="offset points", fontsize=8)
    axes.set(xlabel="SEQ_GROUPS (15 is exact)", ylabel="ms per frame of 80 ms, batch 1", yscale="log")
    axes.set_xticks(sorted({row["seq_groups"] for row in rows}))
    plain_ticks(axes.yaxis)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)


def draw_batches(axes: Any, rows: Sequence[Row]) -> None:
    """Plot seconds of audio per second over the batch size, both logarithmic, for the table's fastest engine."""
    engine = next(name for name in ("kernels", "graph", "eager") if any(r["engine"] == name for r in rows))
    chosen = [row for row in rows if row["engine"] == engine]
    for groups, color in zip(sorted({row["seq_groups"] for row in chosen}, reverse=True), OTHERS, strict=False):
        line = sorted((row for row in chosen if row["seq_groups"] == groups), key=lambda row: row["batch"])
        batches = [row["batch"] for row in line]
        for key, style, what in (
            ("audio_seconds_per_second", "o-", "codes"),
            ("audio_seconds_per_second_with_codec", "s--", "with waveforms"),
        ):
            axes.plot(batches, [r[key] for r in line], style, color=color, label=f"S = {groups}, {what}")
    axes.set(xlabel="batch size", ylabel="seconds of audio per second", xscale="log", yscale="log")
    axes.set_title(NAMES[engine], fontsize=9)
    axes.set_xticks(sorted({row["batch"] for row in chosen}))
    plain_ticks(axes.xaxis)
    plain_ticks(axes.yaxis)
    axes.minorticks_off()
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)


def plain_ticks(axis: Any) -> None:
    """Label ticks with plain numbers instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def title(document: dict[str, Any], shape: str, rows: Sequence[Row]) -> str:
    """Describe the weights, the precision and the machine of the plotted rows."""
    weights = "the demo voice" if shape == DEMO else f"{shape}, random weights"
    precisions = ", ".join(dict.fromkeys(row["precision"] for row in rows))
    days = ", ".join(dict.fromkeys(row["date"] for row in rows))
    machine = f"{document['machine']}, torch {document['versions']['torch']}, {days}"
    return f"Qwen3-TTS {weights}, {precisions} on {machine}"


def plot(document: dict[str, Any], shape: str, out: Path) -> None:
    """Plot a machine's figures for one model into a file, whose suffix selects the format.

    Raises:
        ValueError: the file has no rows of the model.
    """
    from matplotlib.figure import Figure  # not pyplot, which keeps figures in a global list

    tables = {table: rows_of(document, table, shape) for table in ("frames", "batches")}
    tables["batches"] = [row for row in tables["batches"] if not is_int8(row["precision"])]
    plotted = [(draw, tables[table]) for table, draw in PLOTS.items() if tables[table]]
    if not plotted:
        known = sorted({row["model"] for row in document["rows"]})
        raise ValueError(f"there are no rows of {shape} to plot: the file has {', '.join(known) or 'none'}")
    figure = Figure(figsize=(5 * len(plotted), 5), dpi=120, layout="constrained")
    for axes, (draw, rows) in zip(figure.subplots(1, len(plotted), squeeze=False)[0], plotted, strict=True):
        draw(axes, rows)
        axes.grid(alpha=0.3)
    figure.suptitle(title(document, shape, [row for _, rows in plotted for row in rows]), fontsize=10)
    figure.savefig(out)


PLOTS = {"frames": draw_frames, "batches": draw_batches}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, help="a machine's file in lab/benchmarks/results")
    parser.add_argument("--shape", default="0.6B")
    parser.add_argument("--out", type=Path, default=Path("speed.svg"))
    options = parser.parse_args(arguments)
    plot(json.loads(options.results.read_text(encoding="utf-8")), options.shape, options.out)
    print(options.out)


if __name__ == "__main__":
    main()

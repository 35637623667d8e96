"""Plots of quality against time: the sweep shows one line's, the laboratory many lines'."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FRAME_MS = 80  # duration of a frame: slower is not real time
MARKERS = "osD^vP*X"
# As ComfyUI's page.
DARK: dict[Any, str] = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "#222"),
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), "#ddd"
    ),
}


@dataclass(frozen=True)
class Mark:
    """One setting: milliseconds per frame, its value and the value's interval, and its label."""

    ms: float
    value: float
    low: float
    high: float
    label: str


@dataclass(frozen=True)
class Panel:
    """One measure: the axis title, joined marks by series, and named levels to compare with."""

    title: str
    series: dict[str, list[Mark]]
    levels: dict[str, float] = field(default_factory=dict)


def plot_tradeoff(panels: Sequence[Panel], title: str) -> Figure:
    """Draw each measure over milliseconds per frame (logarithmic), two panels abreast."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure  # no pyplot: it keeps figures in a global list

    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(8 if columns == 1 else 13, 4.5 * rows), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    names = list(dict.fromkeys(name for panel in panels for name in panel.series))
    drawn: dict[str, Any] = {}
    for axes, panel in zip(grid, panels, strict=False):
        drawn = _draw(axes, panel, names) | drawn
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=11)
    if len(names) > 1:
        handles = [drawn[name] for name in names]
        figure.legend(handles, names, loc="outside lower center", ncols=6, fontsize=9)
    return figure


def _draw(axes: Any, panel: Panel, names: Sequence[str]) -> dict[str, Any]:
    drawn = {}
    for name, marks in panel.series.items():
        number = names.index(name)
        values = [mark.value for mark in marks]
        reach = [[mark.value - mark.low for mark in marks], [mark.high - mark.value for mark in marks]]
        drawn[name] = axes.errorbar(
            [mark.ms for mark in marks],
            values,
            np.maximum(reach, 0),
            color=f"C{number}",
            marker=MARKERS[number % len(MARKERS)],
            linestyle="-" if len(marks) > 1 else "none",
            capsize=2,
            linewidth=1,
        )
        for mark in marks:
            axes.annotate(mark.label, (mark.ms, mark.value), (4, 4), textcoords="offset points", fontsize=9)
    for name, level in panel.levels.items():
        axes.axhline(level, color="0.6", linestyle="--", linewidth=1)
        axes.annotate(name, (0.01, level), (0, 2), ("axes fraction", "data"), "offset points", fontsize=8)
    times = [mark.ms for marks in panel.series.values() for mark in marks]
    if times and min(times) < FRAME_MS < 2 * max(times):
        axes.axvline(FRAME_MS, color="0.6", linestyle=":", linewidth=1)
    axes.set_xscale("log")
    axes.margins(x=0.1)  # room for the labels
    _label_times(axes, times)
    axes.set_xlabel("ms per frame without codec (80 ms is real time)")
    axes.set_ylabel(panel.title)
    return drawn


def _label_times(axes: Any, times: Sequence[float]) -> None:
    """Show plain numbers at 1, 2 and 5 of each decade, or at every digit if the times are close."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    near = bool(times) and max(times) < 8 * min(times)
    axes.xaxis.set_major_locator(LogLocator(subs=range(1, 10) if near else (1, 2, 5)))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())


def plot_sweep(result: Sweep) -> np.ndarray:
    """Draw a sweep, distance from exact over time, as uint8 RGB ``[H, W, 3]``."""
    from matplotlib import rc_context

    marks = [
        Mark(row.ms_per_frame, row.distance, row.distance, row.distance, f"S={row.seq_groups}")
        for row in result.rows
    ]
    panel = Panel("distance from exact (0..1)", {"crossbar": marks})
    with rc_context(DARK):
        figure = plot_tradeoff([panel], "What each SEQ_GROUPS costs")
    figure.set_size_inches(4.4, 3.2)  # a node shows it small: its letters are large in it
    figure.set_dpi(220)
    figure.axes[0].set_ylim(-0.03, 1)
    canvas: Any = figure.canvas
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()

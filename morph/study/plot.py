"""The plot of a sweep: quality against time."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .sweep import Sweep

FRAME_MS = 80  # duration of a frame: a slower decoder is not real time
DARK = Path(__file__).with_name("dark.mplstyle")  # as ComfyUI's page


def draw(fill: Callable[[Any], None]) -> np.ndarray:
    """Return the figure that ``fill`` draws, as uint8 RGB ``[H, W, 3]``, with large letters: a node shows it small."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure  # no pyplot: it keeps figures in a global list

    with rc_context(fname=DARK):
        figure = Figure(figsize=(4.4, 3.2), dpi=220, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        fill(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def plot_sweep(result: Sweep) -> np.ndarray:
    """Draw a sweep, distance from exact over time, as uint8 RGB ``[H, W, 3]``."""
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        times = [row.ms_per_frame for row in result.rows]
        axes.plot(times, [row.distance for row in result.rows], "o-", linewidth=1)
        for row in result.rows:
            place, label = (row.ms_per_frame, row.distance), f"S={row.seq_groups}"
            axes.annotate(label, place, (4, 4), textcoords="offset points", fontsize=9)
        if min(times) < FRAME_MS < 2 * max(times):
            axes.axvline(FRAME_MS, color="0.6", linestyle=":", linewidth=1)
        axes.set_xscale("log")
        axes.margins(x=0.1)  # room for the labels
        # Plain numbers at 1, 2 and 5 of each decade, or at every digit if the times are close.
        near = max(times) < 8 * min(times)
        axes.xaxis.set_major_locator(LogLocator(subs=range(1, 10) if near else (1, 2, 5)))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(-0.03, 1)
        axes.set_xlabel("ms per frame without codec (80 ms is real time)")
        axes.set_ylabel("distance from exact (0..1)")
        figure.suptitle("What each SEQ_GROUPS costs", fontsize=11)

    return draw(fill)

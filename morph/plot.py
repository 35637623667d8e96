"""The sweep's picture: speed and distance over SEQ_GROUPS."""

from __future__ import annotations

import numpy as np

from .sweep import Sweep

SPEED_COLOR, DISTANCE_COLOR = "#1f77b4", "#d62728"


def plot_sweep(result: Sweep) -> np.ndarray:
    """Draw a sweep; gives uint8 RGB ``[H, W, 3]``."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure  # no pyplot: it keeps figures in a global list

    groups = [row.seq_groups for row in result.rows]
    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    speed = figure.subplots()
    speed.plot(groups, [row.ms_per_frame for row in result.rows], "o-", color=SPEED_COLOR)
    speed.axhline(80, color=SPEED_COLOR, linestyle=":", linewidth=1)
    speed.annotate("real time (80 ms)", (1, 80), xytext=(0, 3), textcoords="offset points", color=SPEED_COLOR)
    speed.set_xlabel("SEQ_GROUPS (15 is exact)")
    speed.set_ylabel("ms a frame, codec not included", color=SPEED_COLOR)
    speed.set_ylim(bottom=0)
    speed.set_xticks(groups)
    distance = speed.twinx()
    distance.plot(groups, [row.distance for row in result.rows], "s--", color=DISTANCE_COLOR)
    distance.set_ylabel("distance to the exact distribution (0..1)", color=DISTANCE_COLOR)
    distance.set_ylim(0, 1)
    speed.set_title("One line at several SEQ_GROUPS: time, and what it costs in exactness", fontsize=11)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()

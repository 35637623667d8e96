"""The plot of a training: its losses over the updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..study.plot import draw
from .trainer import Losses


def plot_losses(history: Sequence[Losses]) -> np.ndarray:
    """Draw the sums of losses of the trained and of the held-out lines, as uint8 RGB ``[H, W, 3]``."""

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        for name, key in (("training", "training"), ("held-out", "held_out")):
            points = [(one.step, sum(found)) for one in history if (found := getattr(one, key))]
            if points:
                axes.plot(*zip(*points, strict=True), "o-", linewidth=1, label=name)
        axes.set_xlabel("updates")
        axes.set_ylabel("loss")
        axes.legend()

    return draw(fill)

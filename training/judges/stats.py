"""Means and ratios with 95 % bootstrap intervals over lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 2000


@dataclass(frozen=True)
class Figure:
    """A value with its 95 % interval and how many lines it rests on."""

    value: float
    low: float
    high: float
    lines: int


def ratio(parts: Sequence[float], wholes: Sequence[float], seed: int = 0) -> Figure:
    """Sum of parts over sum of wholes (an error rate); lines are drawn with replacement.

    Raises ValueError for no lines, unequal lengths or wholes that sum to nothing.
    """
    above, below = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    if above.shape != below.shape or not below.sum() > 0:
        raise ValueError(
            f"{above.shape} parts of {below.shape} wholes that sum to {below.sum()}: nothing to divide"
        )
    drawn = np.random.default_rng(seed).integers(len(above), size=(DRAWS, len(above)))
    sums = below[drawn].sum(axis=1)
    values = above[drawn].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = np.percentile(values, [2.5, 97.5])
    return Figure(float(above.sum() / below.sum()), float(low), float(high), len(above))


def mean(values: Sequence[float], seed: int = 0) -> Figure:
    """The mean of one value a line."""
    return ratio(values, [1.0] * len(values), seed)

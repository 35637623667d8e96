"""Figures with 95 % intervals: means, ratios and medians by bootstrap over lines, shares by Wilson's formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
# The range of five values misses their true median in 1 of 16 cases, that of six in 1 of 32: below six a bootstrap,
# which never leaves the range, makes no 95 % interval.
FEWEST_TIMES = 6


@dataclass(frozen=True)
class Figure:
    """A value, its 95 % interval, and the number of lines it is computed from."""

    value: float
    low: float
    high: float
    lines: int


@dataclass(frozen=True)
class Median:
    """A median, its 95 % interval (None of fewer than FEWEST_TIMES lines), and the number of lines."""

    value: float
    low: float | None
    high: float | None
    lines: int


def ratio(parts: Sequence[float], wholes: Sequence[float], seed: int = 0) -> Figure:
    """Sum of parts over sum of wholes (an error rate), with a bootstrap interval over lines.

    Raises:
        ValueError: no lines, unequal lengths, or wholes that sum to 0.
    """
    above, below = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    if above.shape != below.shape or not below.sum() > 0:
        raise ValueError(
            f"{above.shape} parts and {below.shape} wholes with sum {below.sum()}: need equal lengths and a sum above 0"
        )
    rows = np.random.default_rng(seed).integers(len(above), size=(RESAMPLES, len(above)))
    sums = below[rows].sum(axis=1)
    values = above[rows].sum(axis=1)[sums > 0] / sums[sums > 0]
    low, high = np.percentile(values, [2.5, 97.5])
    return Figure(float(above.sum() / below.sum()), float(low), float(high), len(above))


def mean(values: Sequence[float], seed: int = 0) -> Figure:
    """Mean of one value per line."""
    return ratio(values, [1.0] * len(values), seed)


def median(values: Sequence[float], seed: int = 0) -> Median:
    """Median of one value per line; for times, where one slow spell would dominate a mean. ValueError if empty."""
    column = np.asarray(values, np.float64)
    if not len(column):
        raise ValueError("no values to take the median of")
    if len(column) < FEWEST_TIMES:
        return Median(float(np.median(column)), None, None, len(column))
    rows = np.random.default_rng(seed).integers(len(column), size=(RESAMPLES, len(column)))
    low, high = np.percentile(np.median(column[rows], axis=1), [2.5, 97.5])
    return Median(float(np.median(column)), float(low), float(high), len(column))


def share(held: Sequence[bool]) -> Figure:
    """Share of lines for which ``held`` is true, with Wilson's interval.

    A bootstrap of all true or all false values would have width 0.
    """
    lines = len(held)
    if not lines:
        raise ValueError("no lines to count")
    part, z = sum(held) / lines, 1.96
    middle = (part + z**2 / (2 * lines)) / (1 + z**2 / lines)
    reach = z / (1 + z**2 / lines) * (part * (1 - part) / lines + z**2 / (4 * lines**2)) ** 0.5
    return Figure(part, max(0.0, middle - reach), min(1.0, middle + reach), lines)


def difference(
    parts: Sequence[float],
    wholes: Sequence[float],
    other_parts: Sequence[float],
    other_wholes: Sequence[float],
    seed: int = 0,
) -> Figure:
    """Difference of two ratios over the same lines, paired: the bootstrap resamples whole lines.

    Raises:
        ValueError: no lines, unequal lengths, or wholes that sum to 0.
    """
    columns = [np.asarray(one, np.float64) for one in (parts, wholes, other_parts, other_wholes)]
    if len({column.shape for column in columns}) > 1 or not min(columns[1].sum(), columns[3].sum()) > 0:
        raise ValueError(
            f"columns of {[len(column) for column in columns]} values: need the same lines and wholes that sum above 0"
        )
    rows = np.random.default_rng(seed).integers(len(columns[0]), size=(RESAMPLES, len(columns[0])))
    above, below, other_above, other_below = (column[rows].sum(axis=1) for column in columns)
    held = (below > 0) & (other_below > 0)
    values = above[held] / below[held] - other_above[held] / other_below[held]
    low, high = np.percentile(values, [2.5, 97.5])
    sums = [column.sum() for column in columns]
    return Figure(float(sums[0] / sums[1] - sums[2] / sums[3]), float(low), float(high), len(columns[0]))

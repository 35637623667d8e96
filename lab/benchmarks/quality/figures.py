"""Compute figures with intervals, paired differences from exact, and each metric's statistical power."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ...judges.speaker import cosine, profile
from ...judges.stats import Figure, difference, ratio, share
from .conditions import Condition
from .folder import CODES, JUDGED, REFERENCES, RunFolder, kept_lines, read_json
from .lines import Task


@dataclass(frozen=True)
class Metric:
    """A column. ``scale`` and ``digits`` are for display; ``bar`` is the largest acceptable loss against exact."""

    name: str
    title: str
    higher_is_better: bool
    scale: float = 1.0
    digits: int = 3
    bar: float | None = None

    def worse(self, change: Figure) -> bool:
        """Whether the interval of a difference from exact is entirely on the worse side of 0."""
        return change.high < 0 if self.higher_is_better else change.low > 0

    def verdict(self, change: Figure) -> str:
        """Return "within" or "beyond" if the whole interval is inside or outside the bar, else "open"."""
        if self.bar is None:
            return ""
        harm = (-change.high, -change.low) if self.higher_is_better else (change.low, change.high)
        return "within" if harm[1] <= self.bar else "beyond" if harm[0] > self.bar else "open"


METRICS = (
    Metric("wer", "WER %", False, 100, 2, 0.01),
    Metric("cer", "CER %", False, 100, 2),
    Metric("similarity", "similarity", True, 1, 3, 0.01),
    Metric("mos", "MOS (DistillMOS)", True, 1, 2, 0.05),
    Metric("dnsmos", "DNSMOS", True, 1, 2),
    Metric("ended", "ended %", True, 100, 1),
)

Pairs: TypeAlias = "list[tuple[float, float]] | None"
"""A metric's (part, whole) for every line; the figure is the ratio of their sums. None: not judged."""


@dataclass(frozen=True)
class Row:
    """One condition's figures, and its differences from exact speech; None for a metric that was not judged."""

    condition: Condition
    figures: dict[str, Figure | None]
    changes: dict[str, Figure | None]


def read_rows(folder: RunFolder, conditions: Sequence[Condition], exact: Condition, tasks: Sequence[Task]) -> list[Row]:
    """Return a row for each condition, in order."""
    known = Profiles(folder, exact, tasks)
    base = read_pairs(folder, exact, tasks, known)
    return [_read_row(folder, condition, read_pairs(folder, condition, tasks, known), base) for condition in conditions]


def _read_row(folder: RunFolder, condition: Condition, pairs: dict[str, Pairs], base: dict[str, Pairs]) -> Row:
    figures = {metric.name: _figure(metric, pairs[metric.name]) for metric in METRICS}
    changes = {
        metric.name: None if condition.is_exact else _change(metric, pairs[metric.name], base[metric.name])
        for metric in METRICS
    }
    return Row(condition, figures, changes)


def _figure(metric: Metric, pairs: Pairs) -> Figure | None:
    if not pairs:
        return None
    if metric.name == "ended":
        return share([part > 0 for part, _ in pairs])
    return ratio(*_columns(pairs))


def _columns(pairs: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [part for part, _ in pairs], [whole for _, whole in pairs]


def _change(metric: Metric, pairs: Pairs, base: Pairs) -> Figure | None:
    """Return the paired difference from exact.

    If no line differs in a share, a bootstrap interval would have width 0: the rule of three bounds it instead.
    """
    if not pairs or not base:
        return None
    change = difference(*_columns(pairs), *_columns(base))
    if metric.name == "ended" and pairs == base:
        return Figure(0.0, -3 / len(pairs), 3 / len(pairs), len(pairs))
    return change


class Profiles:
    """Speaker similarity of a line: to the voice's references or, if it has none, to its other exact lines."""

    def __init__(self, folder: RunFolder, exact: Condition, tasks: Sequence[Task]):
        self.tasks = tasks
        self.references: dict[str, list[np.ndarray]] = {}
        for path in sorted((folder.root / JUDGED / REFERENCES).glob("*/*.json")):
            if (embedding := _embedding(read_json(path))) is not None:
                self.references.setdefault(path.parent.name, []).append(embedding)
        self.exact = [_embedding(folder.read(JUDGED, exact.key, line)) for line in range(len(tasks))]

    def similarity(self, line: int, verdict: dict[str, Any]) -> float | None:
        """Return the cosine; 0 for a line without speech, None if there is nothing to compare with."""
        if "voice" not in verdict:
            return None
        voice = self.tasks[line].voice
        others = self.references.get(voice) or [
            embedding
            for other, embedding in enumerate(self.exact)
            if embedding is not None and other != line and self.tasks[other].voice == voice
        ]
        if not others:
            return None
        embedding = _embedding(verdict)
        return 0.0 if embedding is None else cosine(embedding, profile(others))


def _embedding(verdict: dict[str, Any] | None) -> np.ndarray | None:
    values = (verdict or {}).get("voice", {}).get("embedding")
    return None if values is None else np.array(values)


def read_pairs(folder: RunFolder, condition: Condition, tasks: Sequence[Task], known: Profiles) -> dict[str, Pairs]:
    """Return every metric's (part, whole) of every line; None for a metric that is missing on any line."""
    codes = kept_lines(folder, CODES, condition.key, len(tasks))
    verdicts = kept_lines(folder, JUDGED, condition.key, len(tasks))
    pairs: dict[str, Pairs] = {metric.name: None for metric in METRICS}
    if codes is not None:
        pairs["ended"] = [(float(one["ended"] == "eos"), 1.0) for one in codes]
    if verdicts is None:
        return pairs
    pairs["wer"] = _all(verdicts, lambda one: (one["words"]["word_errors"], one["words"]["words"]))
    pairs["cer"] = _all(verdicts, lambda one: (one["words"]["letter_errors"], one["words"]["letters"]))
    pairs["mos"] = _all(verdicts, lambda one: (one["opinion"]["distillmos"], 1.0))
    pairs["dnsmos"] = _all(verdicts, lambda one: (one["opinion"]["dnsmos_overall"], 1.0))
    near = [known.similarity(line, verdict) for line, verdict in enumerate(verdicts)]
    if None not in near:
        pairs["similarity"] = [(value, 1.0) for value in near if value is not None]
    return pairs


def _all(
    verdicts: Sequence[dict[str, Any]], read: Callable[[dict[str, Any]], tuple[float, float]]
) -> list[tuple[float, float]] | None:
    try:
        return [read(verdict) for verdict in verdicts]
    except KeyError:  # a judge that is not installed leaves no entry
        return None


def find_power(rows: Sequence[Row], controls: Sequence[str]) -> dict[str, dict[str, bool]]:
    """Return, for each judged metric, whether it distinguishes each control from exact speech.

    The rule: it does if the 95 % interval of the paired difference is entirely on the worse side of 0. A metric that
    misses a control has no power on these lines: finding no difference with it proves nothing.
    """
    power: dict[str, dict[str, bool]] = {}
    for row in rows:
        for metric in METRICS:
            change = row.changes[metric.name]
            # Spoiling exact codes cannot change how a line ended.
            if row.condition.strategy.name in controls and change is not None and metric.name != "ended":
                power.setdefault(metric.name, {})[row.condition.strategy.name] = metric.worse(change)
    return power

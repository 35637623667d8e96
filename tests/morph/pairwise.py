"""Some cases of a full product that hold every two values together; the product's others are marked slow."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(*axes: Mapping[str, Any]) -> list[Any]:
    """Pytest's parameters of the product of ``axes`` (id -> value): those that a default run needs, and the rest."""
    cases = list(product(*axes))
    left, chosen = {pair for case in cases for pair in pairs(case)}, set()
    while left:
        best = max(cases, key=lambda case: len(left & pairs(case)))  # the first of equals: always the same
        chosen.add(best)
        left -= pairs(best)
    return [
        pytest.param(
            *(axis[name] for axis, name in zip(axes, case, strict=True)),
            id=", ".join(case),
            marks=() if case in chosen else pytest.mark.slow,
        )
        for case in cases
    ]


def pairs(case: tuple[str, ...]) -> set[tuple[tuple[int, str], ...]]:
    """Every two values of a case, with their axes."""
    return set(combinations(enumerate(case), 2))

"""Cases of a full product that cover every pair of values; the other cases are marked slow."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(*axes: Mapping[str, Any]) -> list[Any]:
    """Return pytest's parameters of the product of ``axes`` (id -> value); those not needed for pairs are slow."""
    cases = list(product(*axes))
    left, chosen = {pair for case in cases for pair in pairs(case)}, set()
    while left:
        best = max(
            cases, key=lambda case: len(left & pairs(case))
        )  # the first if equal, so the choice is deterministic
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
    """Return every pair of a case's values, with their axes."""
    return set(combinations(enumerate(case), 2))

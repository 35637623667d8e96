"""Which of many cases the default run has; the others are marked slow."""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def each_value(*axes: Mapping[str, Any]) -> list[Any]:
    """Return pytest's parameters of the product of ``axes`` (id -> value); those not needed for each value are slow."""
    names = [list(axis) for axis in axes]
    chosen = {tuple(own[at % len(own)] for own in names) for at in range(max(map(len, names)))}
    return params(axes, chosen)


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
    return params(axes, chosen)


def params(axes: Sequence[Mapping[str, Any]], chosen: Collection[tuple[str, ...]]) -> list[Any]:
    """Return pytest's parameters of the product of ``axes``; those that are not ``chosen`` are slow."""
    return [
        pytest.param(
            *(axis[name] for axis, name in zip(axes, case, strict=True)),
            id=", ".join(case),
            marks=() if case in chosen else pytest.mark.slow,
        )
        for case in product(*axes)
    ]


def pairs(case: tuple[str, ...]) -> set[tuple[tuple[int, str], ...]]:
    """Return every pair of a case's values, with their axes."""
    return set(combinations(enumerate(case), 2))


def thinned(cases: Sequence[Any], step: int) -> list[Any]:
    """Return pytest's parameters of ``cases``; of those that are not slow all become so but every ``step``-th."""
    params = [case if hasattr(case, "marks") else pytest.param(*as_tuple(case)) for case in cases]
    kept = [param for param in params if pytest.mark.slow.mark not in [mark.mark for mark in param.marks]][::step]
    return [
        param if any(param is one for one in kept) else param._replace(marks=[*param.marks, pytest.mark.slow])
        for param in params
    ]


def as_tuple(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)

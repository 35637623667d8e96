"""Negate one condition of a prepared tree, and record which tests evaluate the others.

The edited conditions call a copy at the top of that tree, also in subprocesses of tests.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class Switch:
    """Which mutant is active, and the file that records evaluations; subprocesses read both from the environment."""

    def __init__(self) -> None:
        self.active = int(os.environ.get("MUTANT", "-1"))
        self.hits = os.environ.get("MUTANT_HITS", "")
        self.seen: set[tuple[int, str]] = set()

    def use(self, active: int, hits: str) -> None:
        self.active, self.hits = active, hits
        os.environ.update(MUTANT=str(active), MUTANT_HITS=hits)

    def flip(self, number: int, value: Any) -> Any:
        """Return a condition's value, negated if its mutant is active."""
        hit = (number, os.environ.get("PYTEST_CURRENT_TEST", "")) if self.hits else None
        if hit and hit not in self.seen:
            self.seen.add(hit)
            with Path(self.hits).open("a", encoding="utf-8") as file:
                file.write("{}\t{}\n".format(*hit))
        return not value if number == self.active else value


switch = Switch()

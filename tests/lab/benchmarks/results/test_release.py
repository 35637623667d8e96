"""The page of a release names machines and dates that the rows of its files have."""

from __future__ import annotations

import json
import re

import pytest

from .test_readme import RESULTS, table

PAGE = "docs/release-0.2.0.md"
MEASURED = table(PAGE, "what", "machine", "dates", "rows", "figures")
GPU = re.compile(r"H[12]00")


def rows_of(name: str) -> list[tuple[str, str]]:
    """Return the machine and the date of each row of a file in results/; what a row lacks is the file's."""
    whole = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    said = {key: whole.get(key) or "" for key in ("machine", "date")}
    return [(row.get("machine") or said["machine"], row.get("date") or said["date"]) for row in whole["rows"]]


@pytest.mark.parametrize("line", MEASURED, ids=lambda line: f"{line[0]} {line[1]}")
def test_its_machines_and_dates_are_those_of_the_rows(line: list[str]) -> None:
    _, machine, dates, files, _ = line
    rows = [row for name in re.findall(r"`([^`]+)`", files) for row in rows_of(name)]
    for date in re.findall(r"\d{4}-\d\d-\d\d", dates):
        ran_on = {on for on, day in rows if day == date}
        assert ran_on, f"no row of {date}"
        named = {*GPU.findall(machine), *re.findall("EPYC", machine)}
        assert not named or all(any(name in on for name in named) for on in ran_on if on != "no machine")

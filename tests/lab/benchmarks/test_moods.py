"""The figures of a voice shift in the page are those of the results file."""

import json

from lab.benchmarks.moods.__main__ import FIGURES, RESULTS, describe
from pack import ROOT


def test_the_page_has_the_rows_of_the_results_file() -> None:
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
    page = (ROOT / "docs" / "log" / "moods.md").read_text(encoding="utf-8")
    assert len({row["pair"] for row in rows}) == 6 and {row["strength"] for row in rows} >= {0, 1, 2}
    for row in rows:
        assert describe(row) in page
        assert row["command"].startswith("python -m lab.benchmarks.moods ") and row["date"] in page
        assert row["machine"] and row["commit"] and set(row) >= {*FIGURES[:4]}

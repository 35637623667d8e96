"""Run the tests of a prepared tree in forks of the process that collected them: once to time them, then mutated.

    python RUNS WORK SECONDS TESTS...     # ``python -m lab.mutants`` starts it in that tree

All times but ``wall`` and the limits of hanging tests are CPU times, independent of other load.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

LONGEST_TEST_S = 5.0  # a longer test judges no mutant
LONGEST_FILE_S = 10.0  # nor do the tests after so much of a file
LONGEST_MUTANT_S = 10.0  # of its tests, quickest first
HANGING_S = 30.0  # beside five times a test's known wall time
Row = dict[str, Any]


class Runs:
    """A pytest plugin that replaces pytest's loop over the tests."""

    def __init__(self, work: Path, seconds: float, switch: Any):
        self.work, self.until, self.switch = work, time.monotonic() + seconds, switch
        self.tests, self.rows, self.hits = work / "tests.jsonl", work / "rows.jsonl", work / "hits.tsv"
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.collect()
        gc.freeze()  # keeps pages shared with the forks
        self.record(session.items)
        self.judge_all({item.nodeid: item for item in session.items})
        return True

    def has_time(self) -> bool:
        return time.monotonic() < self.until

    def record(self, items: Sequence[pytest.Item]) -> None:
        """Append each file's tests with times and outcomes, and the mutants that they reach."""
        files, done = defaultdict(list), {row["file"] for row in read_rows(self.tests)}
        for item in items:
            files[file_of(item.nodeid)].append(item)
        self.switch.hits = str(self.hits)
        for file in filter(lambda file: file not in done and self.has_time(), files):
            append(self.tests, {"file": file, "tests": list(self.run(files[file], -1, {}))})
        self.switch.hits = ""

    def judge_all(self, items: dict[str, pytest.Item]) -> None:
        """Append the outcome of each mutant."""
        tests = {name: test for name, test in usable_tests(self.work).items() if name in items}
        reached, done = self.read_hits(tests), {row["number"] for row in read_rows(self.rows)}
        mutants = json.loads((self.work / "mutants.json").read_text(encoding="utf-8"))
        for number, mutant in enumerate(mutants):
            if mutant["place"] and number not in done and self.has_time():
                names = sorted(reached[number], key=lambda name: (tests[name]["cpu"], name))
                spent = accumulate(tests[name]["cpu"] for name in names)
                chosen = [items[name] for name, s in zip(names, spent, strict=True) if s < LONGEST_MUTANT_S]
                append(self.rows, {"number": number, **self.judge(number, chosen, tests)})

    def read_hits(self, tests: dict[str, Row]) -> dict[int, set[str]]:
        """Return the tests that reach each mutant; what a fixture reaches counts for all tests of its file."""
        of_file: dict[str, set[str]] = defaultdict(set)
        reached: dict[int, set[str]] = defaultdict(set)
        for name in tests:
            of_file[file_of(name)].add(name)
        for line in self.hits.read_text(encoding="utf-8").splitlines():
            number, _, test = line.partition("\t")
            name, _, phase = test.rpartition(" ")
            reached[int(number)] |= {name} & tests.keys() if phase == "(call)" else of_file[file_of(name)]
        return reached

    def judge(self, number: int, items: list[pytest.Item], tests: dict[str, Row]) -> Row:
        """Return the outcome; a test that also fails without the mutant, after the same tests, is left out."""
        while True:
            *_, last = [{"outcome": "passed"}, *self.run(items, number, tests)]
            if last["outcome"] == "passed":
                return {"outcome": "survived", "tests": len(items)}
            count = [item.nodeid for item in items].index(last["test"]) + 1
            *_, control = self.run(items[:count], -1, tests)
            if control["outcome"] == "passed":
                return {"outcome": last["outcome"], "test": last["test"]}
            del items[count - 1]

    def run(self, items: Sequence[pytest.Item], mutant: int, tests: dict[str, Row]) -> Iterator[Row]:
        """Run tests in a fork and yield a row for each: all without a mutant, else until one does not pass."""
        reader, writer = os.pipe()
        temporary = Path(tempfile.mkdtemp(dir=self.work))
        if not (child := os.fork()):
            try:
                os.setpgid(0, 0)
                os.environ["PYTEST_DEBUG_TEMPROOT"] = str(temporary)
                self.switch.use(mutant, self.switch.hits)
                self.run_here(items, writer)
            finally:
                os._exit(0)
        os.setpgid(child, child)  # here too: whichever process comes first
        os.close(writer)
        with os.fdopen(reader, "rb", buffering=0) as lines:
            for item in items:
                limit = HANGING_S + 5 * tests.get(item.nodeid, {"wall": HANGING_S})["wall"]
                line = lines.readline() if select.select([reader], [], [], limit)[0] else b"timeout"
                broken = {"test": item.nodeid, "outcome": line.decode() or "crash"}
                yield (row := json.loads(line) if line[:1] == b"{" else broken)
                if len(row) == 2 or (mutant >= 0 and row["outcome"] != "passed"):
                    break
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        shutil.rmtree(temporary, ignore_errors=True)

    def run_here(self, items: Sequence[pytest.Item], writer: int) -> None:
        for item, following in zip(items, [*items[1:], None], strict=True):
            cpu, wall, self.failed = sum(os.times()[:4]), time.monotonic(), False
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            used, waited = sum(os.times()[:4]) - cpu, time.monotonic() - wall
            row: Row = {"test": item.nodeid, "outcome": "caught" if self.failed else "passed"}
            row |= {"cpu": round(used, 2), "wall": round(waited, 2)}
            os.write(writer, f"{json.dumps(row)}\n".encode())
            if self.switch.hits and cpu + used > LONGEST_FILE_S:
                return


def file_of(test: str) -> str:
    return test.partition("::")[0]


def usable_tests(work: Path) -> dict[str, Row]:
    """Return the tests that judge mutants, by name."""
    found = {}
    for row in read_rows(work / "tests.jsonl"):
        spent = accumulate(test.get("cpu", 0.0) for test in row["tests"])
        for test, until in zip(row["tests"], spent, strict=True):
            if test["outcome"] == "passed" and test["cpu"] < LONGEST_TEST_S and until < LONGEST_FILE_S:
                found[test["test"]] = test
    return found


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def append(path: Path, row: Row) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(row)}\n")


if __name__ == "__main__":
    from mutant_switch import switch  # of the prepared tree

    options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    plugin = Runs(Path(sys.argv[1]), float(sys.argv[2]), switch)
    sys.exit(pytest.main([*options, *sys.argv[3:]], plugins=[plugin]))

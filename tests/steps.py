"""The steps of run_tests.py: a command or a run of pytest, how it ended, and the table of all of them."""

import os
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.environments import ENVS, ROOT

KERNELS = "tests/morph/kernels"
NOTHING_COLLECTED = 5  # pytest's exit code


@dataclass(frozen=True)
class Outcome:
    """How one step ended. ``skipped`` counts pytest's reasons; ``note`` is a line for the summary."""

    name: str
    ok: bool
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    note: str = ""


def run_step(
    name: str,
    command: Sequence[str | Path],
    env: Mapping[str, str] | None = None,
    fine: tuple[int, ...] = (0,),
    beside: bool = False,
    cwd: Path = ROOT,
) -> Outcome:
    """Run a command; an exit code that is not ``fine`` is one failure.

    Its output is on the terminal; that of a command that runs ``beside`` other steps comes in one piece at its end.
    """
    if not beside:
        print(f"\n=== {name}", flush=True)
    caught = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "encoding": "utf-8",
        "errors": "replace",
    }
    started = time.monotonic()
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        **(caught if beside else {}),
    )
    said = f"\n=== {name}\n{done.stdout}" if beside else ""
    return end_step(name, done.returncode in fine, started, said)


def end_step(name: str, ok: bool, started: float, said: str = "") -> Outcome:
    seconds = time.monotonic() - started
    print(f"{said}--- {name}: {'ok' if ok else 'FAILED'}, {seconds:.1f} s", flush=True)
    return Outcome(name, ok, seconds, failed=0 if ok else 1)


@dataclass(frozen=True)
class Suite:
    """A run of pytest. ``beside``: other steps run meanwhile."""

    name: str
    python: Path
    options: Sequence[str | Path]
    env: Mapping[str, str] = field(default_factory=dict)
    beside: bool = False

    @property
    def report(self) -> Path:
        return ENVS / f"{self.name.replace(' ', '_')}.xml"

    @property
    def variables(self) -> dict[str, str]:
        alone = {"HF_HUB_OFFLINE": "1", "MPLBACKEND": "Agg", "PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
        alone["PYTHONDONTWRITEBYTECODE"] = ""  # else every worker and every server compiles each file again
        return alone | self.env


def run_pytest(suite: Suite, extra: Sequence[str]) -> Outcome:
    """Run pytest and read its counts from its report; ``extra``, the user's own, may leave no test to run."""
    name, report = suite.name, suite.report
    report.unlink(missing_ok=True)
    command = [suite.python, "-m", "pytest", f"--junit-xml={report}", *suite.options, *extra]
    may_be_empty = bool(extra) or KERNELS in suite.options  # without Triton
    fine = (0, NOTHING_COLLECTED) if may_be_empty else (0,)
    step = run_step(name, command, suite.variables, fine, suite.beside)
    if not report.exists():
        return step
    if KERNELS in suite.options and not extra and step.ok and not _cases(report):
        return replace(step, skipped=Counter({"not run: no Triton": 1}))
    cases = _cases(report)
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = Counter(mark.get("message", "") for case in cases if (mark := case.find("skipped")) is not None)
    passed = len(cases) - failed - skipped.total()
    # pytest also fails for other reasons than tests: coverage, or nothing collected.
    return Outcome(name, step.ok, step.seconds, passed, failed or step.failed, skipped)


def _cases(report: Path) -> list[ElementTree.Element]:
    return list(ElementTree.parse(report).getroot().iter("testcase"))


def summarize(outcomes: Sequence[Outcome]) -> bool:
    """Print the table, why cases were skipped, notes and the totals; return whether every step passed."""
    print(f"\n{'step':33} {'result':8} {'time':>8} {'passed':>7} {'failed':>7} {'skipped':>8}")
    for step in outcomes:
        result, skipped = "ok" if step.ok else "FAILED", step.skipped.total()
        print(f"{step.name:33} {result:8} {step.seconds:6.1f} s {step.passed:7} {step.failed:7} {skipped:8}")
    for step in outcomes:
        for reason, count in step.skipped.items():
            print(f"skipped in {step.name}, {count}: {reason}")
    for note in (step.note for step in outcomes if step.note):
        print(note)
    passed, failed = sum(step.passed for step in outcomes), sum(step.failed for step in outcomes)
    print(f"{passed} passed, {failed} failed, {sum(step.skipped.total() for step in outcomes)} skipped")
    return all(step.ok for step in outcomes)

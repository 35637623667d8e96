"""The records of runs that not every machine makes (--gpu, --newest), and the versions that the pack knows."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.environments import load_tested
from tests.steps import Outcome


def describe_versions(versions: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{name} {' and '.join(found)}" for name, found in versions.items())


def sort_versions(versions: Iterable[str]) -> list[str]:
    return sorted(set(versions), key=load_tested().order)


def add_tested(file: Path, versions: Mapping[str, Sequence[str]]) -> None:
    """Add versions to those that the pack says it was tested with."""
    known: dict[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
    known = {name: sort_versions([*old, *versions.get(name, ())]) for name, old in known.items()}
    file.write_text(format_tested(known), encoding="utf-8")


def format_tested(known: Mapping[str, Sequence[str]]) -> str:
    """Return the file's text: one line per package."""
    lines = [f"  {json.dumps(name)}: {json.dumps(versions)}" for name, versions in known.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def last_run(file: Path, what: str, option: str, describe: Callable[[dict[str, Any]], str]) -> str:
    """Return one line: when the run with an option last passed.

    Args:
        file: its record; see ``write_record``.
        what: was run.
        option: of this program.
        describe: says what the recorded run was on.
    """
    if not file.exists():
        return f"{what}: no run is recorded (python run_tests.py {option})"
    last = json.loads(file.read_text(encoding="utf-8"))
    return (
        f"{what} last passed on commit {last['commit']}, {last['date']}: {last['passed']} passed, "
        f"{last['skipped']} skipped ({describe(last)})"
    )


def write_record(file: Path, commit: str, about: Mapping[str, Any], outcomes: Sequence[Outcome]) -> None:
    """Write a commit that passed, the date, what it ran on, and the counts."""
    counts = {"passed": sum(step.passed for step in outcomes)}
    counts |= {"skipped": sum(step.skipped.total() for step in outcomes)}
    steps = {step.name: {"passed": step.passed, "skipped": step.skipped.total()} for step in outcomes}
    date = datetime.now(timezone.utc).date().isoformat()
    record = {"commit": commit, "date": date, **about, **counts, "steps": steps}
    file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

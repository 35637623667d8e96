"""Negate conditions of a commit's product, one at a time, and count the mutants that its tests catch.

    python -m lab.mutants 9fefa368 --count 200 --seed 63 --work BEFORE --out before.jsonl
    python -m lab.mutants main --like before.jsonl --work AFTER --out after.jsonl      # the same mutants

WORK, a folder outside the repository, gets a copy of the commit with a switch around each chosen condition, and keeps
all results: the same command continues an interrupted run, also one stopped by ``--minutes``. The tests run once
without a mutant. Each mutant then runs the tests that evaluate its condition, the quickest first, up to 10 s of CPU
time; tests of kernels, of browsers and of a real ComfyUI are left out. With ``--like``, a condition is found again by
its function and source, also in another file; otherwise it counts as gone. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from pack import ROOT

from ..processor import processor_name
from .conditions import Condition, find_again, find_conditions, insert_switches
from .runs import Row, read_rows, usable_tests

HERE = Path(__file__).parent
TESTS = ("tests/morph", "tests/nodes", "tests/postprocess", "tests/serve", "tests/test_speak.py")
LEFT_OUT = ("tests/morph/kernels", "tests/serve/routes/test_page.py", "tests/serve/process/test_ray.py")


def prepare(asked: argparse.Namespace, tree: Path) -> None:
    """Write the commit's files with switches, and ``mutants.json``: each mutant and its place, null if it is gone."""
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", ROOT, "archive", asked.commit], stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    places = find_conditions(tree)
    if asked.like:
        rows = read_rows(asked.like)[1:]
        mutants = [Condition(*(row[name] for name in Condition._fields)) for row in rows]
    else:
        mutants = [place.condition for place in random.Random(asked.seed).sample(places, asked.count)]
    found = find_again(mutants, places)
    numbered = defaultdict(list)
    for number, mutant in enumerate(mutants):
        if mutant in found:
            numbered[found[mutant].condition.file].append((number, found[mutant]))
    for name, own in numbered.items():
        (tree / name).write_bytes(insert_switches((tree / name).read_bytes(), own))
    shutil.copy(HERE / "switch.py", tree / "mutant_switch.py")
    listed = [{**one._asdict(), "place": found[one].condition if one in found else None} for one in mutants]
    (tree.parent / "mutants.json").write_text(json.dumps(listed), encoding="utf-8")


def collect(asked: argparse.Namespace) -> list[Row]:
    """Write and return a row for each mutant, after a first row with their origin."""
    outcomes = {row.pop("number"): row for row in read_rows(asked.work / "rows.jsonl")}
    rows = []
    for number, mutant in enumerate(json.loads((asked.work / "mutants.json").read_text(encoding="utf-8"))):
        place = mutant.pop("place")
        moved = {"now": place} if place and place != list(mutant.values()) else {}
        rows.append({**mutant, **moved, **(outcomes.get(number) or {"outcome": "open" if place else "gone"})})
    origin = {"commit": asked.commit, "date": f"{date.today()}", "machine": processor_name()}
    head = {**origin, "tests": len(usable_tests(asked.work)), **Counter(row["outcome"] for row in rows)}
    asked.out.write_text("".join(f"{json.dumps(row)}\n" for row in (head, *rows)), encoding="utf-8")
    return rows


def summarize(rows: list[Row], before: list[Row]) -> None:
    """Print the share that is caught, and what was caught ``before`` and is not now."""
    print(f"{share(rows)}, {dict(Counter(row['outcome'] for row in rows))}")
    pairs = [(old, row) for old, row in zip(before, rows, strict=False) if is_judged(old) and is_judged(row)]
    if pairs:
        print(f"of those judged in both: {share([old for old, _ in pairs])} before, {share([row for _, row in pairs])}")
    for old, row in pairs:
        if is_caught(old) and not is_caught(row):
            print(f"no longer caught: {row}")


def is_judged(row: Row) -> bool:
    return row["outcome"] not in ("gone", "open")


def is_caught(row: Row) -> bool:
    return row["outcome"] in ("caught", "timeout", "crash")


def share(rows: list[Row]) -> str:
    judged, caught = sum(map(is_judged, rows)), sum(map(is_caught, rows))
    return f"{caught} of {judged} caught ({caught / max(judged, 1):.1%})"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--like", type=Path, help="take the mutants of these rows of another commit")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=63)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=1e6, help="stop then; the same command continues")
    asked = parser.parse_args(arguments)
    tree = asked.work.resolve() / "tree"
    if not tree.exists():
        prepare(asked, tree)
    tests = [name for name in TESTS if (tree / name).exists()] + [f"--ignore={name}" for name in LEFT_OUT]
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, HERE / "runs.py", tree.parent, str(60 * asked.minutes), *tests]
    subprocess.run(command, cwd=tree, env=environment, check=True)
    summarize(collect(asked), read_rows(asked.like)[1:] if asked.like else [])


if __name__ == "__main__":
    main()

"""The origin of figures: the measured commit, the day, and the command."""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pack import ROOT

UNKNOWN = "unknown"
RESULTS = Path("lab/benchmarks/results")
LEFT_OUT = ("--out", "--checkpoints", "--commit")  # folders of a machine, and values that the row has


@dataclass(frozen=True)
class Origin:
    """The origin of a row.

    Args:
        commit: of the tree, with "-dirty" where it had changes.
        date: of the day, ISO 8601.
        command: the command line that measured it, without LEFT_OUT.
    """

    commit: str
    date: str
    command: str

    @classmethod
    def of(cls, commit: str) -> Origin:
        """Return the origin of this process's measurements."""
        return cls(commit, datetime.date.today().isoformat(), command_of(sys.argv))


def add_output(table: argparse.ArgumentParser) -> None:
    """Add the options of every command that stores rows: ``--out`` and ``--commit``."""
    table.add_argument("--out", type=Path, help="folder for the results instead of lab/benchmarks/results")
    table.add_argument("--commit", default=find_commit(), help="of this tree, where it is not a git checkout")


def find_commit(root: Path = ROOT) -> str:
    """Return a tree's commit, "-dirty" after it if there are changes; UNKNOWN if it is no git checkout.

    Rows that other commands have stored do not count as changes.
    """
    found = tree_commit(root, root / RESULTS)
    return f"{found[0][:7]}{'-dirty' if found[1] else ''}" if found else UNKNOWN


def tree_commit(root: Path, written: Path) -> tuple[str, bool] | None:
    """Return a tree's commit and whether it has changes; None if it is not a git checkout.

    Changes of the file or folder ``written`` do not count: the caller writes it.
    """
    git = ["git", "-C", str(root)]
    try:
        top, commit, changes = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (
                ("rev-parse", "--show-toplevel"),
                ("rev-parse", "HEAD"),
                ("status", "--porcelain", "--", ".", f":!{written.relative_to(root).as_posix()}"),
            )
        )
    except (subprocess.CalledProcessError, OSError):
        return None
    return (commit, bool(changes)) if Path(top) == root else None


def command_of(words: Sequence[str]) -> str:
    """Return a command line as it is typed in the clone's root, without LEFT_OUT.

    Args:
        words: as ``sys.argv``: the module's file, then its arguments.
    """
    file, *given = words
    path = Path(file)
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts) if path.is_relative_to(ROOT) else path.name
    kept, skip = [], False
    for word in given:
        skip = word.split("=")[0] in LEFT_OUT or (skip and not word.startswith("--"))
        kept += [] if skip else [word]
    return " ".join(("python -m", name.removesuffix(".__main__"), *kept))

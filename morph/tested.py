"""Tested versions of other packages (``tested.json``), and installed ones.

The tests' own Python, with nothing installed, reads it too. ``python run_tests.py --newest`` adds the versions that it
ran.
"""

import importlib.metadata
import json
import re
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("tested.json")


def tested() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def order(version: str) -> tuple[int, ...]:
    """Return a version's numbers for comparisons: "2.13.0+cpu" is (2, 13, 0)."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()


def describe_newer(more: Mapping[str, str] | None = None) -> str | None:
    """Return a line that names versions newer than any tested, or None; ``more``: of other software (ComfyUI)."""
    here = {name: (more or {}).get(name) or installed(name) for name in tested()}
    newer = [
        f"{name} {here[name]} (tested: up to {known[-1]})"
        for name, known in tested().items()
        if (found := here[name]) and order(found) > order(known[-1])
    ]
    return f"newer than what this version was tested with: {', '.join(newer)}" if newer else None

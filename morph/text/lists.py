"""Read the word lists in ``lists.txt``, constants of this package and of the word matcher."""

import re
from functools import cache
from pathlib import Path


@cache
def _lists() -> dict[str, list[str]]:
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    _, *parts = re.split(r"^\[(\w+\.\w+)\]\n", re.sub(r"(?m)^# .*\n", "", text), flags=re.MULTILINE)
    return {name: rows.strip().split("\n") for name, rows in zip(parts[::2], parts[1::2], strict=True)}


def word_set(name: str) -> frozenset[str]:
    return frozenset(" ".join(_lists()[name]).split())


def alternatives_of(name: str) -> str:
    """Return the alternatives of a pattern, which "|" separates."""
    return "".join(_lists()[name])


def table(name: str) -> dict[str, str]:
    """Return a dictionary from cells "written: said"."""
    cells = ", ".join(_lists()[name]).split(", ")
    return dict(cell.split(": ", 1) for cell in cells)


def pairs(name: str) -> dict[str, tuple[str, str]]:
    """Return a dictionary from cells "written: singular/plural"."""
    said = {written: cell.split("/") for written, cell in table(name).items()}
    return {written: (forms[0], forms[-1]) for written, forms in said.items()}

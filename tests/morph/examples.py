"""Examples of readings, in files of tests/data."""

from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def read_examples(name: str) -> list[tuple[str, ...]]:
    """Return the pairs of a file's lines ``text -> reading``; lines that begin with "# " are comments."""
    lines = (DATA / name).read_text(encoding="utf-8").strip().split("\n")
    return [tuple(line.split(" -> ")) for line in lines if not line.startswith("# ")]

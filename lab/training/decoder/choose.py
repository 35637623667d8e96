"""Choose between trainings that ran equally long, by what they reached on held-out speech.

    python -m lab.training.decoder.choose OUT OUT...

Prints the folder of the training whose speech is most periodic between 1 and 2 kHz, among those whose mel distance is
at most 8 % above the lowest.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

MOST_MEL = 1.08
PERIODIC = "periodicity 1-2 kHz"


def last_held_out(folder: Path) -> dict[str, float]:
    """Return the last validation's figures; raises ValueError if there was none."""
    path = folder / "curve.jsonl"
    rows = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = [row for row in map(json.loads, rows) if "held out" in row]
    if not found:
        raise ValueError(f"{folder} has no validation in curve.jsonl: train it first")
    return found[-1]


def choose(folders: list[Path]) -> Path:
    """Return the best training's folder."""
    figures = {folder: last_held_out(folder) for folder in folders}
    lowest = min(row["mel"] for row in figures.values())
    allowed = [folder for folder in folders if figures[folder]["mel"] <= MOST_MEL * lowest]
    return max(allowed, key=lambda folder: figures[folder][PERIODIC])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.decoder.choose", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("folders", type=Path, nargs="+", help="--out of trainings")
    sys.stdout.write(f"{choose(parser.parse_args().folders)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

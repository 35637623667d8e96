"""Compare two codecs' copies of the same lines, as `lab.training.codec.evaluate` wrote and `lab.judges` judged them.

    python -m lab.training.decoder.compare --old DIR OLD.json --new DIR NEW.json [--originals DIR]

Prints the paired difference of every figure with its 95 % interval, and how periodic voiced speech is in each folder.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...judges.stats import Figure, mean
from ..codec.config import SAMPLE_RATE
from ..periodicity import BANDS, periodicity, pitch_of

LENGTH = 36_000  # samples of each line that are compared, 1.5 s


def values_of(line: Mapping[str, Any]) -> dict[str, float]:
    """Return one judged line's figures by name; those that were not judged are left out."""
    heard = line["heard"]
    found = {**line["opinion"], "word errors": heard["word_errors"] / max(1, heard["words"])}
    named = ("similarity_to_original", "similarity_to_reference")
    return found | {name: line[name] for name in named if line.get(name) is not None}


def differences(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """Return the mean of new minus old by figure; raises ValueError if the lines are not the same."""
    paths = [[line["clip"]["path"] for line in lines] for lines in (old, new)]
    if paths[0] != paths[1] or not paths[0]:
        raise ValueError(
            f"{len(old)} and {len(new)} judged lines that are not the same ones: judge both again"
        )
    pairs = [(values_of(before), values_of(after)) for before, after in zip(old, new, strict=True)]
    names = [name for name in pairs[0][0] if all(name in one for pair in pairs for one in pair)]
    return {name: mean([after[name] - before[name] for before, after in pairs]) for name in names}


def periodic(originals: Path, folder: Path, paths: Sequence[str]) -> dict[str, float]:
    """Return the periodicity of a folder's wavs; pitch and voicing are the originals'."""
    kept = [path for path in paths if len(_read(originals / path)) >= LENGTH]
    if not kept:
        raise ValueError(f"no line in {originals} has {LENGTH} samples: judge longer lines")
    wanted, made = (
        torch.from_numpy(np.stack([_read(root / path)[:LENGTH] for path in kept]))
        for root in (originals, folder)
    )
    return periodicity(made, pitch_of(wanted), BANDS)


def _read(path: Path) -> np.ndarray:
    import soundfile

    wave, rate = soundfile.read(path, dtype="float32")
    if rate != SAMPLE_RATE:
        raise ValueError(f"{path} has {rate} Hz: need {SAMPLE_RATE}")
    return wave


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.decoder.compare", description=(__doc__ or "").splitlines()[0]
    )
    for name in ("old", "new"):
        parser.add_argument(
            f"--{name}",
            type=Path,
            nargs=2,
            required=True,
            metavar=("WAVS", "JSON"),
            help="wavs and judgements",
        )
    parser.add_argument("--originals", type=Path, help="the lines before coding: also compare periodicity")
    given = parser.parse_args()
    old, new = (json.loads(part[1].read_text(encoding="utf-8"))["lines"] for part in (given.old, given.new))
    rows = [
        f"{name:24}{one.value:+8.3f}   {one.low:+.3f} to {one.high:+.3f}   {one.lines} lines"
        for name, one in differences(old, new).items()
    ]
    if given.originals:
        paths = [line["clip"]["path"] for line in old]
        for label, folder in (("recordings", given.originals), ("old", given.old[0]), ("new", given.new[0])):
            found = periodic(given.originals, folder, paths)
            rows.append(f"{label:12}" + "  ".join(f"{name} {value:.3f}" for name, value in found.items()))
    sys.stdout.write("\n".join(rows) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

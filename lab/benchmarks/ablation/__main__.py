"""The paper's ablation table, rerun with the laboratory's measures.

    python -m lab.benchmarks.ablation --checkpoint FOLDER --out runs/ablation

All options are those of ``python -m lab.benchmarks.quality``, and so are the measures, controls and files; a folder
that the laboratory has filled is gone on with. The rows are the paper's eight, then S=5 without the filter, S=4, and
exact speech with the filter alone; ``strategies.py`` and ``predictors.py`` say what each is and where it is our guess.
Sampling is the checkpoint's own (the paper's quick start has temperature 0.6), and lines end by our guard (the
paper's at 256 tokens).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..quality.__main__ import main as run
from .strategies import TABLE


def main(arguments: Sequence[str] | None = None) -> int:
    """The laboratory with the table's rows."""
    return run(arguments, TABLE, "ablation")


if __name__ == "__main__":
    sys.exit(main())

"""The paper's ablation table, repeated with the measures of the quality study.

    python -m lab.benchmarks.ablation --checkpoint FOLDER --out runs/ablation

Options, measures, controls and files are those of ``python -m lab.benchmarks.quality``, and a folder of that command
can be continued. The rows are the paper's eight, then S=5 without the filter, S=4, and exact speech with the filter
only; ``quality/paper_strategies.py`` and ``quality/paper_predictors.py`` describe them and say where we had to guess.
Sampling is the checkpoint's own (the paper's quick start has temperature 0.6), and our guard ends the lines (the
paper's end at 256 tokens).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..quality.__main__ import main as run

# The paper's eight rows in its order, then S=4, S=5 without the filter, and the filter alone.
TABLE = (
    "upstream", "tight-loop", "crossbar:15", "compiled", "refined", "chunked", "crossbar:7", "filtered:5",
    "crossbar:5", "crossbar:4", "filtered:15",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the quality study with the table's rows."""
    return run(arguments, TABLE, "ablation")


if __name__ == "__main__":
    sys.exit(main())

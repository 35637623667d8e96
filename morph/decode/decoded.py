"""The result of decoding a line, and the columns of a frame's report."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..words.trace import REPORTED, Trace

EOS, WORDS = "eos", "words"
BROKEN = "broken"  # how a line ends whose numbers are not finite
# The columns of a frame's report: 16 codes, then whether a number of the line is not finite, then what the alignment
# head says (``words/trace.py``).
FLAG = 16
ALIGNMENT = FLAG + 1
REPORT_WIDTH = ALIGNMENT + REPORTED
SPECIAL_CODES = 1024  # the top of group 0's vocabulary: never sampled, except EOS


@dataclass(frozen=True)
class Decoded:
    """One line's codes ``[T, 16]`` (int64, on the CPU)."""

    codes: torch.Tensor
    ended: str  # EOS, "cap", "loop", WORDS, "cancelled" or BROKEN
    trace: Trace | None = None  # which text token each frame is on; None without an alignment head

"""The result of decoding a line, and a constant of group 0's vocabulary that both engines use."""

from __future__ import annotations

from dataclasses import dataclass

import torch

BROKEN = "broken"  # how a line ends whose numbers are not finite
SPECIAL_CODES = 1024  # the top of group 0's vocabulary: never sampled, except EOS


@dataclass(frozen=True)
class Decoded:
    """One line's codes ``[T, 16]`` (int64, on the CPU).

    ``ended`` says how it ended: "eos", "cap", "loop", "cancelled" or BROKEN.
    """

    codes: torch.Tensor
    ended: str

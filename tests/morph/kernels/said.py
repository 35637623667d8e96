"""Compare what kernels and torch operations say of the alignment head."""

import torch
from qwen3_tts_morph.morph.words.alignment import SCALE

STEPS = SCALE // 50_000  # of a share, by which sums in another order may differ


def same_said(value: torch.Tensor, wanted: torch.Tensor) -> None:
    """Check answers int64 ``[N, 3]``: the same tokens, and nearly the same shares."""
    assert value[:, 0].equal(wanted[:, 0]), (value, wanted)
    assert int((value[:, 1:] - wanted[:, 1:]).abs().max()) <= STEPS, (value, wanted)

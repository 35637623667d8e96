"""Choose a batch's rows: as many as memory allows and the lines need."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ..graph.pool import position_bytes
from ..model.model import Model
from ..options import MOST_LINES
from ..speech.pieces import piece_limit
from .utterance import Utterance

CPU_ROWS = 8  # more are no faster on a CPU
# Expected positions per row: a prompt with 10 s of reference and a piece of 25 s. A growing cache needs memory for the
# old and the new one.
ROW_POSITIONS = 512
# Share of free memory; the rest is for the codec, prefills, a growing cache, and other programs.
SHARE = 0.4


def most_rows(model: Model) -> int:
    """Return the most rows that a batch on the model's device has memory for; 1 to ``MOST_LINES``."""
    if model.device.type != "cuda":
        return CPU_ROWS
    free, _ = torch.cuda.mem_get_info(model.device)
    free += torch.cuda.memory_reserved(model.device) - torch.cuda.memory_allocated(model.device)
    return max(1, min(MOST_LINES, int(SHARE * free) // row_bytes(model)))


def row_bytes(model: Model) -> int:
    return ROW_POSITIONS * position_bytes(model)


def needed_rows(model: Model, lines: Iterable[Utterance]) -> int:
    """Return how many rows these lines can use: an offline line can use one for each piece."""
    rows = 0
    for one in lines:
        limit = 0 if one.speech.is_streamed else piece_limit(model, one.speech.options)
        rows += max(1, -(-len(one.text.text) // limit)) if limit else 1
    return rows

"""Size the KV cache of a running batch: to grow it later releases all graphs."""

from __future__ import annotations

from ..model.model import Model
from .engine import LATE_CONTEXT

MOST_POSITIONS = 2048  # of a row: 30 s of reference and two minutes of speech
SHARE = 3  # of the free memory, the caches of all rows take a third at most


def roomy_context(model: Model, rows: int, free: int) -> int:
    """Return the positions that each row's cache gets before the first line, for ``free`` bytes of memory."""
    context = MOST_POSITIONS
    while context > LATE_CONTEXT and rows * context * position_bytes(model) > free // SHARE:
        context //= 2
    return context


def position_bytes(model: Model) -> int:
    """Return the bytes of one position of a row: keys and values of all talker layers, and its text."""
    config = model.config.talker_config
    cached = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return (cached + config.hidden_size) * model.dtype.itemsize

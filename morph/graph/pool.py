"""The graph decoders of one model, one for single lines and one for batches, and how many rows memory allows."""

from __future__ import annotations

import torch

from ..decode.rows import RowPlan
from ..frame.weights import WeightViews
from ..model.model import Model
from ..options import MOST_LINES
from ..runtime.capture import CaptureStream, Fallback, next_power_of_2
from .backend import FrameBackend
from .engine import LATE_CONTEXT, GraphDecoder

SINGLE_LINE_CONTEXT = 512  # positions that a single line's cache has at least: 40 s, 60 MB in bf16
# The largest kept batch, in rows needed: capturing another takes 0.2 s, and rows beyond MANY cost time in every frame.
SPARE_ROWS, SPARE_OF_MANY = 4, 1.5
MANY = 64
MOST_POSITIONS = 2048  # of a row: 30 s of reference and two minutes of speech
CPU_ROWS = 8  # more are no faster on a CPU
# Expected positions per row: a prompt with 10 s of reference and a piece of 25 s. A growing cache needs memory for the
# old and the new one.
ROW_POSITIONS = 512
# Rows may expect this share of the free memory; the rest is for the codec, prefills, a growing cache, and others.
ROWS_SHARE = 0.4
SHARE = 3  # of the free memory, the caches of all rows take a third at most


class DecoderPool:
    """The graph decoders of one model, created when needed: one for single lines, one for batches.

    Call ``free`` before the model leaves its device; otherwise the next decoding notices and releases the old memory.
    """

    def __init__(self, kernels: bool = True, captures: CaptureStream | None = None) -> None:
        self.frames = FrameBackend(kernels)
        self._captures = captures or CaptureStream()
        self._views = WeightViews()
        self._decoders: dict[bool, GraphDecoder] = {}

    @property
    def fallback(self) -> Fallback | None:
        """Why frames were not replayed as graphs, or None."""
        return next((one.fallback for one in self._decoders.values() if one.fallback), None)

    def decoder(self, model: Model, plan: RowPlan) -> GraphDecoder:
        """Return the decoder for planned lines: that of single lines, or the last batch's if its rows fit."""
        # On a CPU the rows must be equal: an idle row costs time, and there are no graphs to keep.
        needed, exact = plan.rows, model.device.type == "cpu"
        single = needed == 1
        decoder = self._decoders.get(single)
        spare = max(SPARE_ROWS * min(needed, MANY // SPARE_ROWS), int(SPARE_OF_MANY * needed))
        most = needed if exact else min(spare, plan.limit)
        if decoder is None or not needed <= decoder.batch <= most:
            if decoder is not None:
                decoder.free()
            # A power of two, or a multiple of 64, so that few are captured.
            rounded = next_power_of_2(needed) if needed <= MANY else -(-needed // MANY) * MANY
            rows = needed if exact else min(rounded, plan.limit)
            context = SINGLE_LINE_CONTEXT if single else 1
            decoder = GraphDecoder(rows, context, self.frames, self._captures, self._views)
            self._decoders[single] = decoder
        return decoder

    def free(self) -> None:
        for decoder in self._decoders.values():
            decoder.free()
        self._decoders.clear()
        self._views.free()


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


def most_rows(model: Model) -> int:
    """Return the most rows that a batch on the model's device has memory for; 1 to ``MOST_LINES``."""
    if model.device.type != "cuda":
        return CPU_ROWS
    free, _ = torch.cuda.mem_get_info(model.device)
    free += torch.cuda.memory_reserved(model.device) - torch.cuda.memory_allocated(model.device)
    return max(1, min(MOST_LINES, int(ROWS_SHARE * free) // (ROW_POSITIONS * position_bytes(model))))

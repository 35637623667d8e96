"""The graph decoders of one model: one for single lines, one for batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..decode.decoded import Decoded
from ..decode.source import Lines
from ..frame.weights import KeptWeights
from ..model.model import Model
from ..options import GenerateOptions
from ..runtime.capture import CaptureStream
from ..runtime.fallback import Fallback
from ..runtime.sizes import power_above
from .backend import FrameBackend
from .engine import GraphDecoder

SINGLE_LINE_CONTEXT = 512  # positions that a single line's cache has at least: 40 s, 60 MB in bf16
SPARE_ROWS = 4  # a batch is kept if it has at most this many times the rows needed


class DecoderPool:
    """The graph decoders of one model, created when needed: one for single lines, one for batches.

    ``kernels`` False keeps their frames to torch operations. Call ``free`` before the model leaves its device; if a
    model was moved without it, the next decoding notices and releases what the decoders held.
    """

    def __init__(self, kernels: bool = True, captures: CaptureStream | None = None) -> None:
        self.frames = FrameBackend(kernels)
        self._captures = captures or CaptureStream()
        self._views = KeptWeights()
        self._decoders: dict[bool, GraphDecoder] = {}

    @property
    def fallback(self) -> Fallback | None:
        """What kept frames from being replayed as graphs, or None."""
        return next((one.fallback for one in self._decoders.values() if one.fallback), None)

    def decode(
        self,
        model: Model,
        lines: Lines,
        options: GenerateOptions,
        on_frame: Callable[[int], None] | None = None,
    ) -> list[Decoded]:
        """Decode any number of lines, at most ``options.batch_size`` at a time; see ``GraphDecoder.decode``."""
        known = len(lines) if isinstance(lines, Sequence) else options.batch_size
        decoder = self._decoder(known, options.batch_size, model.device)
        return decoder.decode(model, lines, options, on_frame)

    def free(self) -> None:
        """Release all graphs and caches."""
        for decoder in self._decoders.values():
            decoder.free()
        self._decoders.clear()
        self._views.free()

    def _decoder(self, lines: int, batch_size: int, device: torch.device) -> GraphDecoder:
        """Return a decoder: single lines have their own; a batch reuses the last batch's if its rows fit.

        On a CPU it is reused only with exactly the same number of rows: an idle row costs time, and there are no
        graphs to keep.
        """
        needed = min(lines, batch_size)
        single = needed == 1
        decoder = self._decoders.get(single)
        exact = device.type == "cpu"
        most = needed if exact else min(SPARE_ROWS * needed, batch_size)
        if decoder is None or not needed <= decoder.batch <= most:
            if decoder is not None:
                decoder.free()
            rows = needed if exact else min(power_above(needed), batch_size)
            context = SINGLE_LINE_CONTEXT if single else 1
            decoder = GraphDecoder(rows, context, self.frames, self._captures, self._views)
            self._decoders[single] = decoder
        return decoder

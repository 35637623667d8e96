"""The graph decoders of one model: one for single lines, one for batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..decode.decoded import Decoded
from ..decode.guard import Guard
from ..model.model import Model
from ..options import Sampling
from ..runtime.capture import CaptureStream
from ..voice.prompt import Prompt
from .backend import FrameBackend
from .engine import GraphDecoder

ROOM_ALONE = 512  # positions that a single line's cache has at least: 40 s, 60 MB in bf16
SPARE_ROWS = 4  # a batch of so many times the rows that are needed is kept: anything larger is made anew


class DecoderPool:
    """The graph engines of one model, made when they are needed: one for single lines, one for batches.

    ``kernels`` False keeps their frames to torch operations. Whoever moves the model away from its device calls
    ``free``; a model that was moved without it is noticed at the next decoding, and what the engines held is let go
    of then.
    """

    def __init__(self, kernels: bool = True, captures: CaptureStream | None = None) -> None:
        self.frames = FrameBackend(kernels)
        self._captures = captures or CaptureStream()
        self._engines: dict[bool, GraphDecoder] = {}

    @property
    def why_plain(self) -> str | None:
        """What kept frames from being replayed as graphs, or None."""
        return next((one.why_plain for one in self._engines.values() if one.why_plain), None)

    def decode_lines(
        self,
        model: Model,
        prompts: Sequence[Prompt],
        guards: Sequence[Guard],
        seq_groups: int,
        sampling: Sampling,
        seeds: Sequence[int],
        batch_size: int,
        on_frame: Callable[[int], None] | None = None,
        tail: str = "auto",
    ) -> list[Decoded]:
        """Decode any number of lines to their ends, at most ``batch_size`` at a time; see ``GraphDecoder.decode``."""
        engine = self._engine(len(prompts), batch_size, model.device)
        return engine.decode(model, prompts, guards, seq_groups, sampling, seeds, on_frame, tail)

    def free(self) -> None:
        """Let go of all graphs and caches."""
        for engine in self._engines.values():
            engine.free()
        self._engines.clear()

    def _engine(self, lines: int, batch_size: int, device: torch.device) -> GraphDecoder:
        """Single lines have an engine of their own; a batch takes the last batch's where its rows fit.

        On a CPU it is reused only with exactly as many rows: an idle row costs time, and there are no graphs to keep.
        """
        wanted = min(lines, batch_size)
        single = wanted == 1
        engine = self._engines.get(single)
        exact = device.type == "cpu"
        most = wanted if exact else min(SPARE_ROWS * wanted, batch_size)
        if engine is None or not wanted <= engine.batch <= most:
            if engine is not None:
                engine.free()
            rows = wanted if exact else min(1 << (wanted - 1).bit_length(), batch_size)
            engine = GraphDecoder(rows, ROOM_ALONE if single else 1, self.frames, self._captures)
            self._engines[single] = engine
        return engine

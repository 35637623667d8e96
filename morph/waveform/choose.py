"""Whether a model's waveforms are made by the batch codec or by upstream's own decoder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
import torch

from ..codec.upstream import decode_codes
from ..model.model import Model
from ..runtime.capture import CaptureStream
from .engine import BatchCodec

log = logging.getLogger(__name__)


class Waveforms:
    """The codec engine of one model, made when it is needed; upstream's own decoder where it cannot be.

    Args:
        fast: False keeps to upstream's decoder.
        captures: the stream that graphs are captured on, to share it; None makes one.
    """

    def __init__(self, fast: bool = True, captures: CaptureStream | None = None):
        self.fast, self._captures = fast, captures
        self.why_upstream: str | None = None if fast else "the codec engine is off"
        self._engine: BatchCodec | None = None

    def describe(self) -> str | None:
        """What runs otherwise than it would run fastest, in a few words, or None."""
        if self.why_upstream is not None:
            return f"waveforms by the original codec, one line at a time, slower: {self.why_upstream}"
        if self._engine is not None and self._engine.why_torch is not None:
            return f"waveforms in torch operations, slower: {self._engine.why_torch}"
        return None

    def decode_lines(
        self,
        model: Model,
        codes: Sequence[torch.Tensor],
        references: Sequence[torch.Tensor | None],
        on_chunk: Callable[[], None] | None = None,
    ) -> list[np.ndarray]:
        """Decode lines together; arguments and result are ``BatchCodec.decode_batch``'s."""
        engine = self._engine_of(model)
        if engine is None:
            return decode_one_by_one(model, codes, references, on_chunk)
        return engine.decode_batch(codes, references, on_chunk)

    def free(self) -> None:
        """Let go of graphs, buffers and views of the weights."""
        if self._engine is not None:
            self._engine.free()

    def _engine_of(self, model: Model) -> BatchCodec | None:
        if self.fast and (self._engine is None or self._engine.codec is not model.codec):
            try:
                engine = BatchCodec(model, captures=self._captures)
                engine.look_up()
            except ValueError as error:
                self.fast, self.why_upstream = False, str(error)
                log.warning("waveforms are made by the original codec, one line at a time, slower: %s", error)
            else:
                self.free()
                self._engine = engine
        return self._engine if self.fast else None


def decode_one_by_one(
    model: Model,
    codes: Sequence[torch.Tensor],
    references: Sequence[torch.Tensor | None],
    on_chunk: Callable[[], None] | None = None,
) -> list[np.ndarray]:
    """Decode lines through upstream's modules; arguments and result are ``BatchCodec.decode_batch``'s."""
    pairs = zip(codes, references, strict=True)
    return [decode_codes(model, line, reference, on_chunk) for line, reference in pairs]

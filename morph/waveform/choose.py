"""Choose the batch codec or upstream's arithmetic for a model's waveforms."""

import logging

from ..model.model import Model
from ..runtime.capture import CaptureStream
from ..runtime.fallback import Fallback
from .engine import BatchCodec

log = logging.getLogger(__name__)


class Waveforms:
    """The batch codec of one model, created when needed; upstream's arithmetic, line by line, if it cannot run."""

    def __init__(self, captures: CaptureStream | None = None):
        self._captures = captures
        self._refused: Fallback | None = None
        self._codec: BatchCodec | None = None

    @property
    def fallback(self) -> Fallback | None:
        """Why waveforms are made in a slower way than possible, or None."""
        return self._refused or (None if self._codec is None else self._codec.fallback)

    def free(self) -> None:
        if self._codec is not None:
            self._codec.free()

    def batch_codec(self, model: Model) -> BatchCodec | None:
        """Return the model's batch codec, or None if it cannot run."""
        if self._refused is None and (self._codec is None or self._codec.codec is not model.codec):
            try:
                codec = BatchCodec(model, captures=self._captures)
                codec.look_up()
            except ValueError as error:
                self._refused = Fallback("batch codec", str(error))
                log.warning("waveforms are made by the original codec, one line at a time, slower: %s", error)
            else:
                self.free()
                self._codec = codec
        return self._codec if self._refused is None else None

"""What was heard in recordings before: a recogniser that asks a cache first, so that a recording is heard once."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass

import numpy as np

from .line_cache import DamagedLine, LineCache
from .word_check import Recogniser

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RememberedEar:
    """A recogniser that hears a recording only if the cache does not know its words.

    Args:
        recogniser: hears what is not known; its name tells it from others.
        cache: where words are kept.
    """

    recogniser: Recogniser
    cache: LineCache

    @property
    def name(self) -> str:
        """The recogniser's."""
        return self.recogniser.name

    def hear(self, waveform: np.ndarray, sample_rate: int, language: str) -> str:
        """Return the words in a waveform (float32 ``[T]``), as the recogniser heard them now or before."""
        key = self._key(waveform, sample_rate, language)
        try:
            known = self.cache.find_words(key)
        except DamagedLine as error:
            log.warning("words kept from an earlier run: %s; the line is heard again", error)
            known = None
        if known is not None:
            return known
        text = self.recogniser.hear(waveform, sample_rate, language)
        try:
            self.cache.keep_words(key, text)
        except OSError as error:
            log.warning("words cannot be kept: %s", error)
        return text

    def _key(self, waveform: np.ndarray, sample_rate: int, language: str) -> str:
        said = f"{self.name}\0{language.strip().lower()}\0{sample_rate}\0{waveform.dtype}\0"
        return hashlib.sha256(said.encode() + waveform.tobytes()).hexdigest()

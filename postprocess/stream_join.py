"""Join pieces of a line while they are made: the samples of ``join``, in any portions."""

import math

import numpy as np

from .checks import Waveform
from .join import ramp


class StreamJoin:
    """Crossfades mono float32 pieces one after another, each added in portions.

    The result equals ``join(pieces, rate, Spacing(crossfade_ms=...))[0]`` to the bit, with ``gap_s`` where ``gap`` is
    called. A fade (at most ``fade`` samples) takes at most half of each piece, so its samples are held back until the
    next piece is twice as long or has ended. ``pieces`` None: not known yet, see ``limit``.
    """

    def __init__(self, pieces: int | None, fade: int):
        self._left: float = math.inf if pieces is None else pieces
        self._fade = fade
        self._length = 0  # of the current piece so far
        self._pending = np.zeros(0, dtype=np.float32)  # its samples that were not returned
        self._tail: Waveform | None = None  # of the piece before, which may fade into the current one

    def add(self, samples: Waveform) -> Waveform:
        """Add samples of the current piece; return the samples of the result that are final now."""
        self._length += len(samples)
        self._pending = np.concatenate((self._pending, samples)) if len(self._pending) else samples
        return self._advance(ended=False)

    def end(self) -> Waveform:
        """End the current piece; return the samples that are final now."""
        self._left -= 1
        final = self._advance(ended=True)
        self._tail = self._pending if self._left else None
        self._pending, self._length = self._pending[:0], 0
        return final

    def gap(self, samples: int) -> Waveform:
        """Put silence before the current piece, without a fade; return final samples. It must not have begun."""
        tail, self._tail = self._tail, None
        silence = np.zeros(samples, dtype=np.float32)
        return silence if tail is None else np.concatenate((tail + np.float32(0), silence))

    def limit(self, pieces: int) -> Waveform:
        """Set how many pieces have not ended, with the current one; return samples if that makes them final."""
        self._left = pieces
        tail, self._tail = self._tail, None if not pieces else self._tail
        return tail + np.float32(0) if tail is not None and not pieces else self._pending[:0]

    def _advance(self, ended: bool) -> Waveform:
        """Fade the last piece into this one if the fade's length is known; return final samples."""
        if self._tail is not None:
            if not ended and self._length < 2 * self._fade:
                return self._pending[:0]
            self._pending = self._crossfade(self._tail)
            self._tail = None
        count = max(0, len(self._pending) - self._held(ended))
        final, self._pending = self._pending[:count], self._pending[count:]
        return final + np.float32(0)  # as join, which adds pieces to zeros: no -0.0

    def _held(self, ended: bool) -> int:
        """Return how many of the current piece's last samples may fade into the next piece."""
        if ended:
            return min(self._fade, self._length // 2) if self._left else 0
        return self._fade if self._left > 1 else 0

    def _crossfade(self, tail: Waveform) -> Waveform:
        length = min(len(tail), self._length // 2)
        before, after = tail[len(tail) - length :].copy(), self._pending[:length].copy()
        before *= 1.0 - ramp(length)  # in place, as join: computed in float64, rounded to float32
        after *= ramp(length)
        return np.concatenate((tail[: len(tail) - length], before + after, self._pending[length:]))

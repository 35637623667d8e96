"""Find the first audible sound of a line, after the silence that most lines begin with."""

from __future__ import annotations

import numpy as np

AUDIBLE = 10 ** (-50 / 20)
WINDOW = 240  # samples: 10 ms


def first_audible(samples: np.ndarray) -> int | None:
    """Return the index of the first 10 ms that are louder than AUDIBLE, without their mean, or None."""
    windows = samples[: len(samples) // WINDOW * WINDOW].reshape(-1, WINDOW)
    loud = windows.std(axis=1) > AUDIBLE
    return int(loud.argmax()) * WINDOW if loud.any() else None


class Listener:
    """Finds when a player of raw PCM (16 bits, mono), received in parts, plays the first audible sample."""

    def __init__(self, rate: int):
        self.at: float | None = None
        self._rate, self._rest, self._rest_at = rate, b"", 0.0

    def add(self, data: bytes, plays_at: float) -> None:
        """Take the next part, whose first sample is played at this time, in seconds."""
        if self.at is not None:
            return
        sound, before = self._rest + data, len(self._rest)
        whole = len(sound) // (2 * WINDOW) * 2 * WINDOW
        samples = np.frombuffer(sound[:whole], np.int16).astype(np.float32) / 32768
        if (index := first_audible(samples)) is not None:
            is_in_rest = 2 * index < before
            self.at = self._rest_at + index / self._rate if is_in_rest else self._time(index, before, plays_at)
        elif whole or not before:
            self._rest, self._rest_at = sound[whole:], self._time(whole // 2, before, plays_at)
        else:
            self._rest = sound

    def _time(self, index: int, before: int, plays_at: float) -> float:
        """Return when a sample is played; ``index`` counts from the ``before`` bytes left over from earlier parts."""
        return plays_at + (index - before / 2) / self._rate

"""Trim silence from both ends of a waveform."""

from dataclasses import dataclass

import numpy as np

from .checks import Waveform, check_range, check_sample_rate, check_waveform, from_db, peak_of


@dataclass(frozen=True)
class Trim:
    """Options of ``trim_silence``."""

    threshold_db: float = -50.0  # -120..-1 dB relative to the peak, so quiet and loud takes are cut alike
    margin_ms: float = 20.0  # silence to keep at each end, 0..10000 ms

    def __post_init__(self) -> None:
        check_range("threshold_db", self.threshold_db, -120.0, -1.0, "dB")
        check_range("margin_ms", self.margin_ms, 0.0, 10000.0, "ms")


def trim_silence(waveform: Waveform, sample_rate: int, options: Trim | None = None) -> Waveform:
    """Cut the silence before the first and after the last sound of ``waveform`` ([T] or [C, T])."""
    # Digital silence is returned uncut: an empty result could not be saved.
    options = options or Trim()
    check_waveform(waveform)
    check_sample_rate(sample_rate)
    peak = peak_of(waveform)
    if peak == 0.0:
        return waveform.copy()
    level = np.abs(np.atleast_2d(waveform)).max(axis=0)
    sound = np.flatnonzero(level >= peak * from_db(options.threshold_db))
    margin = round(options.margin_ms / 1000 * sample_rate)
    return waveform[..., max(0, int(sound[0]) - margin) : int(sound[-1]) + 1 + margin].copy()

"""Cut silence off the two ends of a waveform."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .checks import Waveform, check_range, check_sample_rate, check_waveform, from_db, peak_of


@dataclass(frozen=True)
class Trim:
    """What ``trim_silence`` takes for silence.

    threshold_db: samples below this level are silence, -120..-1 dB relative to the waveform's own peak, so
    that a quiet and a loud take of one line are cut alike.
    margin_ms: how much of the silence is kept at each end, 0..10000 ms.
    """

    threshold_db: float = -50.0
    margin_ms: float = 20.0

    def __post_init__(self) -> None:
        check_range("threshold_db", self.threshold_db, -120.0, -1.0, "dB")
        check_range("margin_ms", self.margin_ms, 0.0, 10000.0, "ms")


def trim_silence(waveform: Waveform, sample_rate: int, options: Trim | None = None) -> Waveform:
    """Cut the silence before the first and after the last sound of ``waveform`` ([T] or [C, T]).

    A sample is sound when any channel reaches the threshold; silence in between stays. Gives a new array of
    the same dtype with at least one sample. Digital silence comes back whole: an empty result could not be
    saved. Raises ValueError for anything that is no finite waveform.
    """
    start, end = sound_span(waveform, sample_rate, options)
    return waveform[..., start:end].copy()


def sound_span(waveform: Waveform, sample_rate: int, options: Trim | None = None) -> tuple[int, int]:
    """Where the sound of ``waveform`` ([T] or [C, T]) begins and ends, in samples, with the margin, end excluded.

    Digital silence is a span of everything. Raises ValueError for anything that is no finite waveform.
    """
    options = options or Trim()
    check_waveform(waveform)
    check_sample_rate(sample_rate)
    peak = peak_of(waveform)
    if peak == 0.0:
        return 0, waveform.shape[-1]
    level = np.abs(np.atleast_2d(waveform)).max(axis=0)
    sound = np.flatnonzero(level >= peak * from_db(options.threshold_db))
    margin = round(options.margin_ms / 1000 * sample_rate)
    return max(0, int(sound[0]) - margin), min(level.size, int(sound[-1]) + 1 + margin)

"""Trim silence from both ends of a waveform."""

import numpy as np

from .checks import Waveform, check_sample_rate, check_waveform, from_db, peak_of

THRESHOLD_DB = -50.0  # relative to the peak, so quiet and loud takes are cut alike
MARGIN_S = 0.02  # of silence that stays at each end


def trim_silence(waveform: Waveform, sample_rate: int) -> Waveform:
    """Cut the silence before the first and after the last sound of ``waveform`` ([T] or [C, T])."""
    # Digital silence is returned uncut: an empty result could not be saved.
    check_waveform(waveform)
    check_sample_rate(sample_rate)
    peak = peak_of(waveform)
    if peak == 0.0:
        return waveform.copy()
    level = np.abs(np.atleast_2d(waveform)).max(axis=0)
    sound = np.flatnonzero(level >= peak * from_db(THRESHOLD_DB))
    margin = round(MARGIN_S * sample_rate)
    return waveform[..., max(0, int(sound[0]) - margin) : int(sound[-1]) + 1 + margin].copy()

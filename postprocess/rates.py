"""Resample waveforms."""

from math import gcd

import numpy as np


def resample(waveform: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Return float32 ``[T]`` at ``wanted`` Hz from one at ``rate`` Hz, by scipy's polyphase filter."""
    if rate == wanted:
        return waveform
    from scipy.signal import resample_poly

    common = gcd(rate, wanted)
    made: np.ndarray = resample_poly(waveform, wanted // common, rate // common)
    return made.astype(np.float32)

"""Convert samples to the integers of sound files and streams, and to other sample rates."""

from math import gcd

import numpy as np


def to_s16(samples: np.ndarray) -> np.ndarray:
    """Convert float samples within -1..1, of any shape, to signed 16 bits, little endian, as FFmpeg does."""
    scaled = samples * np.float32(32768)
    # In place, and without np.clip: either would double the time for seconds of sound.
    np.rint(scaled, out=scaled)
    np.minimum(scaled, 32767, out=scaled)
    np.maximum(scaled, -32768, out=scaled)
    return scaled.astype("<i2")


def resample(waveform: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Return float32 ``[T]`` at ``wanted`` Hz from one at ``rate`` Hz, by scipy's polyphase filter."""
    if rate == wanted:
        return waveform
    from scipy.signal import resample_poly

    common = gcd(rate, wanted)
    made: np.ndarray = resample_poly(waveform, wanted // common, rate // common)
    return made.astype(np.float32)

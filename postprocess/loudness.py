"""Change the level of a waveform: by decibels, to a peak level, or to a loudness."""

import logging
import math
from dataclasses import dataclass

import numpy as np

from .checks import Waveform, check_range, check_sample_rate, check_waveform, from_db, peak_of

log = logging.getLogger(__name__)

QUIETEST_DB = -60.0
BLOCK_S = 0.4  # BS.1770 measures in blocks of 400 ms
MEASURED_CHANNELS = 5  # BS.1770 defines weights for five channels
LOWEST_MEASURED_RATE = 4000  # its filter acts at 1.7 kHz, above the Nyquist frequency of lower rates
TOLERANCE_LU = 0.01
MOST_CORRECTIONS = 20


@dataclass(frozen=True)
class Loudness:
    """The target of ``normalize_loudness``."""

    lufs: float = -16.0  # integrated loudness, -60..0 LUFS (-16: podcasts; -23: European broadcast)
    ceiling_db: float = -1.0  # for every sample, -60..0 dBFS (not oversampled "true peak")

    def __post_init__(self) -> None:
        check_range("lufs", self.lufs, QUIETEST_DB, 0.0, "LUFS")
        check_range("ceiling_db", self.ceiling_db, QUIETEST_DB, 0.0, "dBFS")


def amplify(samples: np.ndarray, gain_db: float | None) -> np.ndarray:
    """Return float32 samples at another level, clipped to -1..1; None: the same samples."""
    if gain_db is None:
        return samples
    return np.clip(samples * np.float32(from_db(gain_db)), np.float32(-1), np.float32(1))


def normalize_peak(waveform: Waveform, peak_db: float = -3.0) -> Waveform:
    """Scale ``waveform`` ([T] or [C, T]), all channels alike, so that its peak is ``peak_db`` (-60..0 dBFS)."""
    check_waveform(waveform)
    check_range("peak_db", peak_db, QUIETEST_DB, 0.0, "dBFS")
    return _scale_to_peak(waveform, from_db(peak_db))


def normalize_loudness(waveform: Waveform, sample_rate: int, options: Loudness | None = None) -> Waveform:
    """Scale ``waveform`` ([T] or [C, T], up to 5 channels) to a loudness by ITU-R BS.1770-4 (pyloudnorm).

    One gain for all channels, no limiter: if the target would lift a sample over the ceiling, the result stays at the
    ceiling and is quieter than the target; the log says so. Audio below the standard's gate of -70 LUFS has no
    loudness and is returned unchanged.
    """
    options = options or Loudness()
    check_waveform(waveform)
    check_sample_rate(sample_rate)
    if peak_of(waveform) == 0.0:
        return waveform.copy()
    measured = measure_loudness(waveform, sample_rate)
    if math.isinf(measured):
        log.warning("audio is below -70 LUFS and has no loudness to normalize: it is not changed")
        return waveform.copy()
    ceiling = from_db(options.ceiling_db)
    limit = ceiling / peak_of(waveform)
    gain, reached = _find_gain(waveform, sample_rate, options.lufs, limit, measured)
    if gain < limit:
        return (waveform.astype(np.float64) * gain).astype(waveform.dtype)
    log.info("kept at %.1f LUFS: %.1f would exceed the ceiling", reached, options.lufs)
    return _scale_to_peak(waveform, ceiling)


def _find_gain(waveform: Waveform, sample_rate: int, lufs: float, limit: float, measured: float) -> tuple[float, float]:
    """Return the gain, at most ``limit``, from ``measured`` to ``lufs``, and the LUFS reached."""
    # A gain also moves quiet parts across the standard's gate of -70 LUFS, so the loudness does not follow it
    # exactly: the gain is corrected until no further part crosses.
    exact = waveform.astype(np.float64)
    gain, reached = 1.0, measured
    for _ in range(MOST_CORRECTIONS):
        gain = min(gain * from_db(lufs - reached), limit)
        reached = measure_loudness(exact * gain, sample_rate)
        if abs(lufs - reached) <= TOLERANCE_LU or (gain == limit and reached < lufs):
            return gain, reached
    log.warning("loudness is %.2f LUFS instead of %.2f: its quiet parts keep crossing the gate", reached, lufs)
    return gain, reached


def measure_loudness(waveform: Waveform, sample_rate: int) -> float:
    """Return the integrated loudness of ``waveform`` ([T] or [C, T]) in LUFS; -inf below the gate of -70 LUFS.

    Audio shorter than 0.4 s, the standard's block, is repeated to that length. Raise ValueError above 5 channels and
    below 4000 samples per second.
    """
    import pyloudnorm  # imported here: the engine imports this package and does not need it

    check_waveform(waveform)
    check_sample_rate(sample_rate)
    channels = np.atleast_2d(waveform).astype(np.float64)
    if channels.shape[0] > MEASURED_CHANNELS:
        raise ValueError(
            f"waveform has {channels.shape[0]} channels, and loudness is defined for at most "
            f"{MEASURED_CHANNELS}: normalize its peak instead"
        )
    if sample_rate < LOWEST_MEASURED_RATE:
        raise ValueError(
            f"sample_rate is {sample_rate}, and loudness is defined only from {LOWEST_MEASURED_RATE}: "
            "normalize its peak instead"
        )
    # The standard measures complete blocks: repeat short audio.
    repeats = math.ceil(BLOCK_S * sample_rate / channels.shape[1])
    channels = np.tile(channels, (1, repeats))
    return float(pyloudnorm.Meter(sample_rate).integrated_loudness(channels.T))


def _scale_to_peak(waveform: Waveform, level: float) -> Waveform:
    peak = peak_of(waveform)
    if peak == 0.0:
        return waveform.copy()
    # Dividing first: with a subnormal peak, the gain would overflow.
    return (waveform.astype(np.float64) / peak * level).astype(waveform.dtype)

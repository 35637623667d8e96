"""A Butterworth low-pass, to take the edge off the codec's highest frequencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import butter, sosfilt, sosfiltfilt

from .checks import Waveform, check_range, check_sample_rate, check_switch, check_waveform, is_whole

MAX_ORDER = 16


@dataclass(frozen=True)
class LowPass:
    """How ``low_pass`` filters.

    order: 1..16; each order adds 6 dB an octave far above the cutoff.
    cutoff_hz: where the level has fallen by 3 dB; must lie below half the sample rate.
    zero_phase: filter forwards and backwards. Nothing is delayed, but it acts twice: 6 dB at the cutoff.

    What the default (order 2, 11000 Hz) does to 24 kHz audio, once through: 0.04 dB at 9 kHz, 0.25 dB at
    10 kHz, 3 dB at 11 kHz, 40 dB at 11.9 kHz. It touches only the last kilohertz; speech below 9 kHz stays as
    it is. At 48 kHz the same options act more gently and from lower down (1.3 dB at 9 kHz, 3 dB at 11 kHz).
    """

    order: int = 2
    cutoff_hz: float = 11000.0
    zero_phase: bool = False

    def __post_init__(self) -> None:
        if not is_whole(self.order, 1, MAX_ORDER):
            raise ValueError(f"order is {self.order!r}: choose a whole number from 1 to {MAX_ORDER}")
        check_range("cutoff_hz", self.cutoff_hz, 1.0, 1e6, "Hz")
        check_switch("zero_phase", self.zero_phase)


def low_pass(waveform: Waveform, sample_rate: int, options: LowPass | None = None) -> Waveform:
    """Filter ``waveform`` ([T] or [C, T]) and give a new one of the same shape and dtype; any T >= 1.

    The filter runs as second-order sections, in float64, from rest (zero state). Raises ValueError for a
    cutoff at or above half of ``sample_rate`` and for anything that is no finite waveform.
    """
    options = options or LowPass()
    check_waveform(waveform)
    check_sample_rate(sample_rate)
    nyquist = sample_rate / 2
    if options.cutoff_hz >= nyquist:
        raise ValueError(
            f"cutoff_hz is {options.cutoff_hz:g} Hz, but audio of {sample_rate} samples a second ends at "
            f"{nyquist:g} Hz: choose a cutoff below {nyquist:g} Hz, or leave the filter out"
        )
    sections = butter(options.order, options.cutoff_hz, fs=sample_rate, output="sos")
    exact = waveform.astype(np.float64)
    if not options.zero_phase:
        return sosfilt(sections, exact, axis=-1).astype(waveform.dtype)
    # scipy refuses inputs shorter than its padding, so short ones are padded less.
    padding = min(3 * (2 * len(sections) + 1), waveform.shape[-1] - 1)
    return sosfiltfilt(sections, exact, axis=-1, padlen=padding).astype(waveform.dtype)

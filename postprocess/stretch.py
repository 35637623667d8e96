"""Speed without a change of pitch, and pitch without a change of speed, by Signalsmith Stretch (python-stretch)."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .checks import Waveform, check_range, check_sample_rate, check_waveform, peak_of

LOWEST_SPEED, HIGHEST_SPEED = 0.5, 2.0
MOST_SEMITONES = 12.0
# Half of the library's preset, which is for music: measured on speech, docs/log/timing.md.
BLOCK_S = 0.06
HOPS_IN_BLOCK = 4
SEED = 0  # of the library's random phases: the same input gives the same samples


@dataclass(frozen=True)
class Stretch:
    """Options of ``stretch``."""

    speed: float = 1.0  # 0.5..2; 1.1 is a tenth faster
    semitones: float = 0.0  # of pitch, -12..12; formants, which make a voice small or large, move along

    def __post_init__(self) -> None:
        check_range("speed", self.speed, LOWEST_SPEED, HIGHEST_SPEED)
        check_range("pitch", self.semitones, -MOST_SEMITONES, MOST_SEMITONES, "semitones")

    @property
    def changes_nothing(self) -> bool:
        return self.speed == 1.0 and self.semitones == 0.0


def check_installed() -> None:
    _library()


def stretched_length(samples: int, speed: float) -> int:
    """Return the number of samples that ``stretch`` returns: samples / speed, halves up, at least one."""
    return max(1, math.floor(samples / speed + 0.5))


def stretch(waveform: Waveform, sample_rate: int, options: Stretch) -> Waveform:
    """Change the speed and the pitch of ``waveform`` ([T] or [C, T]), each without the other.

    The result has ``stretched_length(T, speed)`` samples and is the same for the same input; at speed 1 and pitch 0 it
    is the input, bit for bit. Times are exact to within a hop (15 ms). No sample exceeds full scale or the input's
    peak. Raise ValueError for a waveform that is not finite, or without the library.
    """
    check_waveform(waveform)
    check_sample_rate(sample_rate)
    if options.changes_nothing:
        return waveform.copy()
    channels = np.ascontiguousarray(np.atleast_2d(waveform), dtype=np.float32)
    processor = _library().Stretch(SEED)
    hop = max(1, round(BLOCK_S * sample_rate / HOPS_IN_BLOCK))
    processor.configure(len(channels), HOPS_IN_BLOCK * hop, hop)
    processor.setTimeFactor(options.speed)
    if options.semitones:
        processor.setTransposeSemitones(options.semitones)
    made = processor.process(channels)
    # The library may round by one differently.
    length = stretched_length(waveform.shape[-1], options.speed)
    fitted = np.pad(made, ((0, 0), (0, max(0, length - made.shape[-1]))))[:, :length]
    ceiling = max(1.0, peak_of(waveform))
    clipped = np.clip(fitted, -ceiling, ceiling).astype(waveform.dtype)
    return clipped[0] if waveform.ndim == 1 else clipped


def _library() -> Any:
    try:
        from python_stretch import Signalsmith
    except ImportError as error:
        raise ValueError(
            f"speed and pitch need the package python-stretch ({error}): run python -m pip install python-stretch with "
            "ComfyUI's Python and restart"
        ) from error
    return Signalsmith

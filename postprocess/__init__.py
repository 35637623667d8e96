"""Waveform to waveform: filter, loudness, silence, speed, pitch, joining. Imports neither torch nor ComfyUI.

A waveform is a numpy array of float32 or float64, shape [T] or [C, T]. Every function returns a new array and
does not change its input; every invalid input raises a ValueError that names it.
"""

from .checks import Waveform
from .filters import LowPass, low_pass
from .join import Spacing, Span, join
from .loudness import Loudness, measure_loudness, normalize_loudness, normalize_peak
from .silence import Trim, trim_silence
from .stretch import Stretch, stretch

__all__ = [
    "Loudness",
    "LowPass",
    "Spacing",
    "Span",
    "Stretch",
    "Trim",
    "Waveform",
    "join",
    "low_pass",
    "measure_loudness",
    "normalize_loudness",
    "normalize_peak",
    "stretch",
    "trim_silence",
]

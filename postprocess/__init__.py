"""Waveform to waveform: filter, loudness, silence, joining. No torch and no ComfyUI in here.

A waveform is a numpy array of float32 or float64, shape [T] or [C, T]. Every function gives a new array and
leaves its input as it was; every wrong input is a ValueError that names it.
"""

from __future__ import annotations

from .checks import Waveform
from .filters import LowPass, low_pass
from .join import Span, join
from .loudness import Loudness, measure_loudness, normalize_loudness, normalize_peak
from .silence import Trim, trim_silence

__all__ = [
    "Loudness",
    "LowPass",
    "Span",
    "Trim",
    "Waveform",
    "join",
    "low_pass",
    "measure_loudness",
    "normalize_loudness",
    "normalize_peak",
    "trim_silence",
]

"""Checks of inputs, shared by all waveform functions, the engine and the nodes."""

import math
import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Waveform: TypeAlias = NDArray[np.floating[Any]]
Span: TypeAlias = tuple[int, int]  # of samples, the end excluded

MAX_CHANNELS = 8  # 7.1 surround; more rows than this are samples, not channels
# int and float first: checking an abstract class takes ten times as long.
WHOLE, REAL = (int, Integral), (int, float, Real)
LARGEST = sys.float_info.max
LOUDEST = 2.0**32  # full scale is 1; allows unscaled 32-bit integers, and no filter overflows
MAX_SAMPLE_RATE = 768_000  # the highest rate of audio converters


def is_number(value: Any, low: float = -LARGEST, high: float = LARGEST) -> bool:
    """Return whether ``value`` is a finite real number (numpy's included, booleans not) in ``low``..``high``."""
    real = isinstance(value, REAL) and not isinstance(value, bool)
    return real and bool(low <= value <= high)  # NaN compares false


def is_whole(value: Any, low: float = -LARGEST, high: float = LARGEST) -> bool:
    """Return whether ``value`` is an integer (numpy's included; booleans and 2.0 not) in ``low``..``high``."""
    return isinstance(value, WHOLE) and is_number(value, low, high)


def check_waveform(waveform: Waveform, name: str = "waveform") -> None:
    """Raise ValueError unless a waveform is finite float32 or float64, [T] or [C, T], T >= 1, up to LOUDEST."""
    if not isinstance(waveform, np.ndarray) or waveform.dtype not in (np.float32, np.float64):
        kind = getattr(waveform, "dtype", type(waveform).__name__)
        raise ValueError(f"{name} is {kind}: give a numpy array of float32 or float64")
    if waveform.ndim not in (1, 2):
        raise ValueError(f"{name} has shape {waveform.shape}: give [samples] or [channels, samples]")
    if waveform.size == 0:
        raise ValueError(f"{name} is empty (shape {waveform.shape}): give at least one sample")
    if waveform.ndim == 2 and waveform.shape[0] > MAX_CHANNELS:
        raise ValueError(
            f"{name} has {waveform.shape[0]} channels, more than {MAX_CHANNELS}: give [channels, samples], "
            "not [samples, channels]"
        )
    if not np.isfinite(waveform).all():
        raise ValueError(f"{name} contains NaN or infinity: render or record it again")
    if (peak := peak_of(waveform)) > LOUDEST:
        raise ValueError(f"{name} has a sample of {peak:.3g}, where full scale is 1: divide it by its full scale")


def check_sample_rate(sample_rate: int) -> None:
    """Raise ValueError unless ``sample_rate`` (samples per second) is a whole number from 1 to MAX_SAMPLE_RATE."""
    if not is_whole(sample_rate, 1, MAX_SAMPLE_RATE):
        raise ValueError(
            f"sample_rate is {sample_rate!r}: give samples per second as a whole number up to {MAX_SAMPLE_RATE}, "
            "e.g. 24000"
        )


def check_range(name: str, value: float, low: float, high: float, unit: str = "") -> None:
    """Raise ValueError unless ``value`` is a number in ``low``..``high``, bounds included."""
    if not is_number(value, low, high):
        raise ValueError(f"{name} is {value!r}: choose {low:g} to {high:g} {unit}".rstrip())


def check_choice(name: str, value: str, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``, else raise ValueError."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} is {value!r}: choose one of {', '.join(choices)}")
    return value


def peak_of(waveform: Waveform) -> float:
    return float(np.abs(waveform).max())


def from_db(decibels: float) -> float:
    """Return the amplitude factor of a level in dB (0 dB is 1.0)."""
    return math.pow(10.0, decibels / 20.0)

"""The pitch, the level and the length of a recording of speech."""

from __future__ import annotations

from dataclasses import dataclass

import librosa
import numpy as np
import torch

from .pitch import SAMPLE_RATE, pitch_of

QUIET_DB = 40.0  # below the loudest: silence at the ends, which is cut
LOUD_DB = 30.0  # blocks quieter than this below the loudest are pauses, which have no level
BLOCK_S = 0.05


@dataclass(frozen=True)
class Sound:
    """The measurements of one recording.

    Args:
        pitch: the median of its voiced frames, in semitones above 1 Hz.
        spread: their standard deviation, in semitones.
        level: of its loud blocks, in dB below full scale.
        seconds: without the silence at its ends.
    """

    pitch: float
    spread: float
    level: float
    seconds: float


def measure(waveform: np.ndarray, rate: int) -> Sound:
    """Measure a recording, float ``[T]``; raise ValueError if nothing in it is voiced."""
    wave = waveform if rate == SAMPLE_RATE else librosa.resample(waveform, orig_sr=rate, target_sr=SAMPLE_RATE)
    wave, _ = librosa.effects.trim(np.asarray(wave, np.float32), top_db=QUIET_DB)
    found = pitch_of(torch.from_numpy(wave)[None])
    lags = found.lags[found.voiced].numpy()
    if not len(lags):
        raise ValueError("nothing in the recording is voiced: give speech")
    semitones = 12 * np.log2(SAMPLE_RATE / lags)
    return Sound(float(np.median(semitones)), float(np.std(semitones)), _level(wave), len(wave) / SAMPLE_RATE)


def _level(wave: np.ndarray) -> float:
    size = round(BLOCK_S * SAMPLE_RATE)
    blocks = wave[: len(wave) // size * size].reshape(-1, size)
    power = np.square(blocks, dtype=np.float64).mean(axis=1)
    loud = power[power > power.max() * 10 ** (-LOUD_DB / 10)]
    return float(10 * np.log10(loud.mean()))

"""Sounds like speech to whatever looks at levels: syllables of a voiced tone, with pauses of a quiet noise."""

import numpy as np

RATE = 16000
ROOM = 1e-3  # amplitude of the noise in pauses


def hush(seconds: float, amplitude: float = ROOM) -> np.ndarray:
    noise = np.random.default_rng(0).standard_normal(round(seconds * RATE))
    return (amplitude * noise).astype(np.float32)


def phrase(seconds: float, amplitude: float = 0.3) -> np.ndarray:
    """Return syllables without a pause, five in a second."""
    time = np.arange(round(seconds * RATE)) / RATE
    syllables = 0.15 + 0.85 * np.abs(np.sin(2 * np.pi * 2.5 * time))
    tone = np.sin(2 * np.pi * 140 * time) + 0.5 * np.sin(2 * np.pi * 1900 * time)
    return (amplitude * syllables * tone / 1.5).astype(np.float32) + hush(seconds)


def clip(waveform: np.ndarray, at: float) -> np.ndarray:
    return np.clip(waveform, -at, at)

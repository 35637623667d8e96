"""Recordings as people make them, from clean speech: the talker's references, which it must not take for targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import signal

LEAST = 1e-4  # of a signal's level, so that silence has one


@dataclass(frozen=True)
class RoughOptions:
    """Ranges to draw from, and shares of recordings that have each flaw.

    Args:
        gain_db: change of level, up or down.
        silence_s: longest silence at each end.
        noisy, noise_db: share with noise, and its distance below the speech.
        echoing, echo_s: share in a room, and the time in which its echo falls by 60 dB.
        narrow, limit_hz: share without high frequencies, and from where.
        speed: least and most; the pitch changes with it.
    """

    gain_db: float = 8.0
    silence_s: float = 0.6
    noisy: float = 0.6
    noise_db: tuple[float, float] = (10.0, 35.0)
    echoing: float = 0.35
    echo_s: tuple[float, float] = (0.1, 0.4)
    narrow: float = 0.35
    limit_hz: tuple[float, float] = (3500.0, 8000.0)
    speed: tuple[float, float] = (0.92, 1.08)


def roughen(
    audio: np.ndarray, rng: np.random.Generator, sample_rate: int, options: RoughOptions
) -> np.ndarray:
    """Return a recording of the same words with random flaws, float32, of another length; peaks stay within 1.

    Args:
        audio: clean speech, float32 ``[T]``.
        rng: where the flaws are drawn from.
        sample_rate: of ``audio`` and of what is returned.
        options: which flaws.
    """
    level = max(float(np.sqrt(np.square(audio).mean())), LEAST)
    audio = _resampled(audio, rng.uniform(*options.speed))
    before, after = (rng.uniform(0, options.silence_s, 2) * sample_rate).astype(int)
    audio = np.pad(audio, (before, after))
    if rng.random() < options.echoing:
        audio = _in_a_room(audio, rng, round(rng.uniform(*options.echo_s) * sample_rate))
    if rng.random() < options.noisy:
        audio = audio + level * 10 ** (-rng.uniform(*options.noise_db) / 20) * _noise(rng, len(audio))
    if rng.random() < options.narrow:
        low = signal.butter(6, rng.uniform(*options.limit_hz), fs=sample_rate, output="sos")
        audio = signal.sosfilt(low, audio)
    audio = audio * 10 ** (rng.uniform(-options.gain_db, options.gain_db) / 20)
    return (audio / max(1.0, float(np.abs(audio).max()))).astype(np.float32)


def _resampled(audio: np.ndarray, speed: float) -> np.ndarray:
    places = np.arange(0, len(audio) - 1, speed)
    return np.interp(places, np.arange(len(audio)), audio)


def _in_a_room(audio: np.ndarray, rng: np.random.Generator, samples: int) -> np.ndarray:
    """Add an echo of noise that falls by 60 dB in so many samples, quieter than the voice itself."""
    echo = rng.normal(size=samples) * 10 ** (-3 * np.arange(samples) / samples)
    echo *= rng.uniform(0.1, 0.5) / np.sqrt(np.square(echo).sum())
    echo[0] = 1.0
    return signal.fftconvolve(audio, echo)[: len(audio)]


def _noise(rng: np.random.Generator, samples: int) -> np.ndarray:
    """Return noise of level 1, white or with more low frequencies."""
    spectrum = np.fft.rfft(rng.normal(size=samples))
    spectrum /= np.maximum(np.arange(len(spectrum)), 1.0) ** rng.uniform(0, 0.7)
    spectrum[0] = 0
    noise = np.fft.irfft(spectrum, samples)
    return noise / np.sqrt(np.square(noise).mean())

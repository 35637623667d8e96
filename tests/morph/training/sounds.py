"""Recordings for trainings: noise whose level changes as that of speech, and their files."""

from pathlib import Path

import numpy as np
import soundfile

RATE, TEXT = 24000, "One two three."


def noise(seconds: float, seed: int = 0, rate: int = RATE) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, round(seconds * rate)).astype(np.float32)


def speech(seconds: float, seed: int = 0, rate: int = RATE) -> np.ndarray:
    """Return noise in four syllables per second, with pauses."""
    sound = noise(seconds, seed, rate)
    level = np.maximum(0, np.sin(2 * np.pi * 4 * np.arange(len(sound)) / rate)) + 1e-3
    return (sound * level).astype(np.float32)


def write(folder: Path, name: str, sound: np.ndarray, text: str | None = TEXT, rate: int = RATE) -> Path:
    folder.mkdir(exist_ok=True)
    soundfile.write(folder / f"{name}.wav", sound, rate)
    if text is not None:
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder

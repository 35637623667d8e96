"""The wavs to judge and what they should say.

A texts file has one line a clip, ``PATH<tab>TEXT``, the path relative to the wavs' folder; the folder that a wav lies
in names its speaker. ``python -m lab.training.corpus wavs`` writes both so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

JUDGE_RATE = 16000


@dataclass(frozen=True)
class Clip:
    """One wav: its path relative to the wavs' folder, its speaker ("" when it lies in that folder itself) and text."""

    path: str
    speaker: str
    text: str


def read_texts(file: Path) -> list[Clip]:
    """Read a texts file; raises ValueError naming a line that is not ``PATH<tab>TEXT``."""
    clips = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        path, tab, text = line.partition("\t")
        if not tab or not path or not text.strip():
            raise ValueError(f"{file} line {number}: {line!r} is not PATH<tab>TEXT")
        clips.append(Clip(path, PurePosixPath(path).parent.name, text.strip()))
    if not clips:
        raise ValueError(f"{file} names no wav")
    return clips


def load_clip(path: Path) -> np.ndarray:
    """A wav as the judges hear it: mono float32 at 16 kHz."""
    import librosa
    import soundfile

    audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = audio.mean(axis=1)
    if not mono.size:
        raise ValueError(f"{path} holds no audio")
    return librosa.resample(mono, orig_sr=rate, target_sr=JUDGE_RATE) if rate != JUDGE_RATE else mono

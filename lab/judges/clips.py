"""The wavs to judge and their texts.

A texts file has one clip per line, ``PATH<tab>TEXT``, with the path relative to the folder of wavs; the parent folder
of a wav names its speaker. Further columns are other spellings of the text, such as figures in words: the transcript is
compared with the nearest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

JUDGE_RATE = 16000


@dataclass(frozen=True)
class Clip:
    """One wav: path relative to the folder of wavs, speaker ("" when the wav is directly in that folder), and text.

    ``spellings``: other spellings of the text, equally correct.
    """

    path: str
    speaker: str
    text: str
    spellings: tuple[str, ...] = ()


def read_texts(file: Path) -> list[Clip]:
    """Read a texts file.

    Raises:
        ValueError: a line is not ``PATH<tab>TEXT`` (the message names it), or the file is empty.
    """
    clips = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        path, *texts = (part.strip() for part in line.split("\t"))
        if not texts or not path or not all(texts):
            raise ValueError(f"{file} line {number}: {line!r} is not PATH<tab>TEXT")
        clips.append(Clip(path, PurePosixPath(path).parent.name, texts[0], tuple(texts[1:])))
    if not clips:
        raise ValueError(f"{file} lists no wav: write PATH<tab>TEXT per line")
    return clips


def load_clip(path: Path) -> np.ndarray:
    """Load a wav as the judges need it: mono float32 at 16 kHz, ``[T]``."""
    import librosa
    import soundfile

    audio, rate = soundfile.read(path, dtype="float32", always_2d=True)
    mono = audio.mean(axis=1)
    if not mono.size:
        raise ValueError(f"{path} contains no audio")
    return librosa.resample(mono, orig_sr=rate, target_sr=JUDGE_RATE) if rate != JUDGE_RATE else mono

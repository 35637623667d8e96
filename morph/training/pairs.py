"""Read recordings of one speaker with their transcripts: NAME.wav and NAME.txt in a folder."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ..voice.recording import SUFFIXES, Recording, read_recording, read_transcript
from ..voice.reference import LONGEST_S, prepare_reference


@dataclass(frozen=True, eq=False)
class Pair:
    """A recording, mono float32 ``[T]`` at the codec's rate, and its transcript."""

    name: str
    waveform: np.ndarray
    text: str


def read_texts(folder: Path) -> dict[str, str]:
    """Return the texts of a folder by name, in the order of their names; ValueError without any."""
    texts = {path.stem: read_transcript(path) or "" for path in sorted(folder.glob("*.txt"))}
    if not texts or not all(texts.values()):
        raise ValueError(f"{folder} has no texts, or an empty one: write NAME.txt for each NAME.wav")
    return texts


def read_pairs(folder: Path, rate: int) -> list[Pair]:
    """Return the pairs of a folder in the order of their names; other rates and channels are converted.

    Args:
        folder: with a recording of 1 to 30 s (wav, flac, mp3 or ogg) and a text in UTF-8 for each name.
        rate: of the codec, in Hz.

    Raises:
        ValueError: naming the file and the fix.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: give one with NAME.wav and NAME.txt")
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    spoken = {path.stem for path in files}
    if silent := sorted(path.name for path in folder.glob("*.txt") if path.stem not in spoken):
        raise ValueError(f"{silent[0]} has no recording beside it: add it as wav, or remove the text")
    if len(spoken) < len(files):
        twice = next(one.stem for one, after in pairwise(files) if one.stem == after.stem)
        raise ValueError(f"{twice} has two recordings for one text: keep one of them")
    if not files:
        raise ValueError(f"{folder} has no recordings: put NAME.wav and NAME.txt into it")
    return [_prepared(path, read_recording(path), rate) for path in files]


def _prepared(path: Path, recording: Recording, rate: int) -> Pair:
    if recording.transcript is None:
        raise ValueError(f"{path.name} has no words: write what it says into {path.stem}.txt")
    seconds = recording.waveform.shape[-1] / recording.sample_rate
    if seconds > LONGEST_S:
        raise ValueError(
            f"{path.name} is longer than {LONGEST_S:.0f} s: cut it, and its text, at the end of a sentence"
        )
    try:
        prepared = prepare_reference(recording.waveform, recording.sample_rate, rate)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    return Pair(path.stem, prepared.waveform, recording.transcript)

"""Read all recordings of a folder with their transcripts, NAME.wav and NAME.txt, for experiments."""

from __future__ import annotations

from pathlib import Path

from qwen3_tts_morph.morph.training.pairs import Pair, check_recordings, read_folder
from qwen3_tts_morph.morph.voice.recording import read_transcript


def read_texts(folder: Path) -> dict[str, str]:
    """Return the texts of a folder by name, in the order of their names; ValueError without any."""
    texts = {path.stem: read_transcript(path) or "" for path in sorted(folder.glob("*.txt"))}
    if not texts or not all(texts.values()):
        raise ValueError(f"{folder} has no texts, or an empty one: write NAME.txt for each NAME.wav")
    return texts


def read_pairs(folder: Path, rate: int) -> list[Pair]:
    """Return all pairs of a folder by name; ValueError, naming the file and the fix, if one cannot be used."""
    recordings, refused = read_folder(folder)
    found = check_recordings(recordings, rate, "auto", None, lambda _: None)
    for name, reason in {**refused, **found.refused}.items():
        raise ValueError(f"{name}: {reason}")
    return found.pairs

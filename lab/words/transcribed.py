"""Word times by a recogniser: whisper-base, exact to about 20 to 50 ms."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from qwen3_tts_morph.morph.hearing.whisper import Whisper

from ..judges.asr import join_model


@dataclass(frozen=True)
class TranscribedWord:
    """A transcribed word, and its start and end in seconds."""

    word: str
    start: float
    end: float


class WordRecogniser(Protocol):
    """A recogniser of words and their times."""

    def transcribe(self, waveform: np.ndarray, sample_rate: int) -> list[TranscribedWord]:
        """Return the words of a waveform, float32 ``[T]``."""


class WhisperTranscriber:
    """whisper-base, as Transcribe uses it."""

    def __init__(self, folder: Path):
        self._whisper = Whisper(join_model(folder), "base")

    def transcribe(self, waveform: np.ndarray, sample_rate: int) -> list[TranscribedWord]:
        """Return the words of a waveform, float32 ``[T]``."""
        found = self._whisper.transcribe_words(waveform, sample_rate, "english")
        return [TranscribedWord(one.text, round(one.start_s, 3), round(one.end_s, 3)) for one in found.words]


def transcribe_line(
    transcriber: WordRecogniser, paths: Sequence[Path], pieces: Sequence[np.ndarray], sample_rate: int
) -> list[TranscribedWord]:
    """Return the words of a line, its pieces one after another; they are cached beside the first piece's file."""
    kept = paths[0].with_suffix(".json" if len(paths) == 1 else ".joined.json")
    if not kept.is_file():
        words = [asdict(word) for word in transcriber.transcribe(np.concatenate(pieces), sample_rate)]
        kept.write_text(json.dumps(words), encoding="utf-8")
    return [TranscribedWord(**word) for word in json.loads(kept.read_text(encoding="utf-8"))]


def plain(word: str) -> str:
    """Return a word's letters and digits in lower case."""
    return re.sub(r"[^\w']|_", "", word.replace("\u2019", "'").lower())


def join(words: Sequence[TranscribedWord]) -> str:
    return " ".join(word.word for word in words)

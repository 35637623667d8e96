"""Transcribe a reference recording with a speech recogniser."""

import numpy as np

from ..hearing.whisper import RATE, Recogniser
from .reference import prepare_reference


def transcribe_recording(recogniser: Recogniser, waveform: np.ndarray, sample_rate: int) -> str:
    """Return the words of a recording, for ``CloneOptions.transcript``; the recogniser detects the language.

    ``waveform`` is float ``[T]`` or ``[C, T]`` at any rate in Hz, prepared as for cloning.

    Raises ValueError for a recording that ICL cannot use (``prepare_reference``), or one without words.
    """
    reference = prepare_reference(waveform, sample_rate, RATE, refuse_long=True)
    words = " ".join(recogniser.transcribe(reference.waveform, RATE, "auto").split())
    if not any(map(str.isalnum, words)):
        raise ValueError("no words are heard in the recording: type its transcript, or use x-vector mode")
    return words

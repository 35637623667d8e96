"""The transcript of a reference recording, as a speech recogniser hears it."""

from __future__ import annotations

import numpy as np

from ..hearing.whisper import RATE, Recogniser
from .reference import prepare_reference


def hear_transcript(recogniser: Recogniser, waveform: np.ndarray, sample_rate: int) -> str:
    """Return the words of a recording, for ``CloneOptions.transcript``; the recogniser finds out the language.

    Args:
        recogniser: it.
        waveform: float ``[T]`` or ``[C, T]``, any rate; it is prepared as for cloning.
        sample_rate: Hz.

    Raises:
        ValueError: for a recording that ICL cannot use (``prepare_reference``), or one without words.
    """
    reference = prepare_reference(waveform, sample_rate, RATE, refuse_long=True)
    words = " ".join(recogniser.hear(reference.waveform, RATE, "auto").split())
    if not any(map(str.isalnum, words)):
        raise ValueError("no words are heard in the recording: type its transcript, or use x-vector mode")
    return words

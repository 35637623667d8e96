"""Use a recording in the voice folder as a voice, cloned by the model that speaks.

``anna.wav`` is the voice "anna": ICL with the transcript ``anna.txt`` beside it, x-vector without.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..text.encoding import read_text_file
from .reference import prepare_reference
from .voice import LONGEST_TRANSCRIPT, Voice

if TYPE_CHECKING:
    import numpy as np

    from ..hearing.whisper import Whisper
    from ..model.model import Model

SUFFIXES = (".wav", ".flac", ".mp3", ".ogg")
LONGEST_READ_S = 60.0  # of a file: cloning uses the first 30 s, or refuses it
MOST_TEXT_BYTES = 4 * LONGEST_TRANSCRIPT


@dataclass(frozen=True, eq=False)
class Recording:
    """A recording of a speaker."""

    name: str
    waveform: np.ndarray  # float32 ``[C, T]``
    sample_rate: int
    transcript: str | None = None  # None if unknown


def read_recording(path: Path) -> Recording:
    """Return the recording in a file, with the text beside it; ValueError if it cannot be read."""
    import soundfile

    try:
        with soundfile.SoundFile(path) as file:
            rate = int(file.samplerate)
            waveform = file.read(round(LONGEST_READ_S * rate), dtype="float32", always_2d=True).T
    except (OSError, soundfile.SoundFileError) as error:
        raise ValueError(f"{path.name} cannot be read as a recording ({error}): save it as wav") from error
    return Recording(path.stem, waveform, rate, read_transcript(path.with_suffix(".txt")))


def read_transcript(path: Path) -> str | None:
    """Return the text of a file, None if it is missing or empty; ValueError if it cannot be read."""
    if not path.is_file():
        return None
    text = read_text_file(path, MOST_TEXT_BYTES, "keep only what the recording says").strip()
    return text or None


def clone_recording(model: Model, recording: Recording) -> Voice:
    from .create import CloneOptions, clone_voice  # torch

    mode = "icl" if recording.transcript else "x_vector"
    options = CloneOptions(mode, recording.transcript, name=recording.name)
    return clone_voice(model, recording.waveform, recording.sample_rate, options)


def transcribe_recording(recogniser: Whisper, waveform: np.ndarray, sample_rate: int) -> str:
    """Return the words of a recording, for ``CloneOptions.transcript``; the recogniser detects the language.

    ``waveform`` is float ``[T]`` or ``[C, T]`` at any rate in Hz, prepared as for cloning.

    Raises ValueError for a recording that ICL cannot use (``prepare_reference``), or one without words.
    """
    from ..hearing.whisper import RATE

    reference = prepare_reference(waveform, sample_rate, RATE, refuse_long=True)
    words = " ".join(recogniser.transcribe(reference.waveform, RATE, "auto").split())
    if not any(map(str.isalnum, words)):
        raise ValueError("no words are heard in the recording: type its transcript, or use x-vector mode")
    return words

"""Read recordings, and write sound files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...morph.audio.formats import RECORDED
from ...morph.audio.reader import is_installed, read_compressed
from ...morph.runtime import atomic_file

if TYPE_CHECKING:
    import numpy as np

LONGEST_S = 24 * 3600.0  # of a recording; a damaged header may claim any length


def read_recording(path: Path) -> tuple[np.ndarray, int]:
    """Return a recording as float32 ``[C, T]`` and its rate; ValueError for another file."""
    import soundfile

    kinds = "a wav, flac, ogg or mp3 file" + (", or m4a, mp4, aac or webm" if is_installed() else "")
    try:
        if path.suffix.lower() in RECORDED and is_installed():
            return read_compressed(path)
        with soundfile.SoundFile(path) as file:
            if file.frames > LONGEST_S * file.samplerate:  # before memory for them is allocated
                raise ValueError(f"it says that it has {file.frames} samples: save it again")
            return file.read(dtype="float32", always_2d=True).T, file.samplerate
    except (OSError, soundfile.SoundFileError, ValueError, MemoryError) as error:
        raise ValueError(f"{path} cannot be read as a recording: give {kinds} ({error})") from error


def write_sound(path: Path, waveform: np.ndarray, rate: int) -> None:
    """Write a sound file atomically; ValueError if it cannot be written."""
    from ...morph.audio.writer import encode_by_libsndfile

    write_atomic(path, encode_by_libsndfile(waveform, rate, path.suffix[1:].lower()))


def write_atomic(path: Path, content: bytes) -> None:
    with explaining(path, "written"):
        atomic_file.write_atomic(path, content)


@contextmanager
def explaining(path: object, what: str, fix: str = "choose another with --out") -> Iterator[None]:
    """Raise ValueError with the path and the fix for an OSError inside the ``with``."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path} cannot be {what} ({error.strerror}): {fix}") from error

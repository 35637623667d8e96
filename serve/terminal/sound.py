"""Sound in files and in streams: recordings in, speech out."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ...morph.runtime import whole_file
from ..audio.compressed import DEMUXERS, is_installed, read_compressed
from .arguments import FORMATS

if TYPE_CHECKING:
    import numpy as np

STREAMED = ("wav", "pcm")  # can be read while they are written
LONGEST_S = 24 * 3600.0  # of a recording; a damaged header may claim any length


def read_recording(path: Path) -> tuple[np.ndarray, int]:
    """Return a recording as float32 ``[C, T]`` and its rate; ValueError for a file that is not one."""
    import soundfile

    kinds = "a wav, flac, ogg or mp3 file" + (", or m4a, mp4, aac or webm" if is_installed() else "")
    try:
        if path.suffix.lower() in DEMUXERS and is_installed():
            return read_compressed(path)
        return _read_sound(path)
    except (OSError, soundfile.SoundFileError, ValueError, MemoryError) as error:
        raise ValueError(f"{path} cannot be read as a recording: give {kinds} ({error})") from error


def _read_sound(path: Path) -> tuple[np.ndarray, int]:
    import soundfile

    with soundfile.SoundFile(path) as file:
        if file.frames > LONGEST_S * file.samplerate:  # memory for them would be asked for
            raise ValueError(f"it says that it has {file.frames} samples: save it again")
        return file.read(dtype="float32", always_2d=True).T, file.samplerate


def encode(waveform: np.ndarray, rate: int, ending: str) -> bytes:
    """Return float ``[T]`` as the content of a file with this ending (a key of FORMATS), or of ``.pcm``."""
    import soundfile

    if ending == ".pcm":
        return to_s16(waveform).tobytes()
    kind, subtype = FORMATS[ending]
    samples = to_s16(waveform) if subtype == "PCM_16" else waveform
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format=kind, subtype=subtype)
    return buffer.getvalue()


def write_sound(path: Path, waveform: np.ndarray, rate: int) -> None:
    """Write a sound file completely or not at all; ValueError if it cannot be written."""
    write_whole(path, encode(waveform, rate, path.suffix.lower()))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely or not at all; ValueError if it cannot be written."""
    with explaining(path, "written"):
        whole_file.write_whole(path, content)


@contextmanager
def explaining(path: object, what: str, fix: str = "choose another with --out") -> Iterator[None]:
    """Raise ValueError, with a path and the fix, where the system refuses what is done with it inside the ``with``."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path} cannot be {what} ({error.strerror}): {fix}") from error


def to_s16(samples: np.ndarray) -> np.ndarray:
    """Return float samples as signed 16 bits (see ``postprocess/pcm.py``, which needs numpy)."""
    from ...postprocess import pcm

    return pcm.to_s16(samples)


def stream_header(kind: str, rate: int) -> bytes:
    """Return what comes before the samples of a mono stream: nothing for "pcm", a header without a length for "wav"."""
    from ..audio.encoders import wav_header

    return b"" if kind == "pcm" else wav_header(rate, None)

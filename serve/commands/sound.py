"""Sound in files and in streams: recordings in, speech out."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import FORMATS, unfinished

if TYPE_CHECKING:
    import numpy as np

STREAMED = ("wav", "pcm")  # can be read while they are written


def read_recording(path: Path) -> tuple[np.ndarray, int]:
    """Return a recording as float32 ``[C, T]`` and its rate; ValueError for a file that is not one."""
    import soundfile

    try:
        waveform, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as error:
        raise ValueError(
            f"{path} cannot be read as a recording: give a wav, flac, ogg or mp3 file"
        ) from error
    return waveform.T, rate


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
    try:
        unfinished(path).write_bytes(content)
        os.replace(unfinished(path), path)
    except OSError as error:
        raise ValueError(f"{path} cannot be written ({error.strerror}): choose another with --out") from error
    finally:
        unfinished(path).unlink(missing_ok=True)


def to_s16(samples: np.ndarray) -> np.ndarray:
    """Return float samples as signed 16 bits (see ``postprocess/pcm.py``, which needs numpy)."""
    from ...postprocess import pcm

    return pcm.to_s16(samples)


def stream_header(kind: str, rate: int) -> bytes:
    """Return what comes before the samples of a mono stream: nothing for "pcm", a header without a length for "wav"."""
    from ..encoders import wav_header

    return b"" if kind == "pcm" else wav_header(rate, None)

"""Read recordings, write sound files, and play speech while it is generated, by sounddevice (PortAudio)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...morph.audio.formats import RECORDED, is_installed, read_compressed
from ...morph.runtime import atomic_file

if TYPE_CHECKING:
    import numpy as np

PACKAGE = "sounddevice"
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


def find_device() -> Any:
    """Return sounddevice's module; ValueError if it, PortAudio or a device is missing."""
    try:
        device = importlib.import_module(PACKAGE)
    except ModuleNotFoundError:
        fix = f"run {sys.executable} -m pip install {PACKAGE}, or write a file with --out"
        raise ValueError(f"--play needs {PACKAGE}: {fix}") from None
    except OSError as error:  # PortAudio is missing
        raise ValueError(f"--play needs PortAudio ({error}): install it, as libportaudio2") from error
    with refused(device):
        device.query_devices(kind="output")
    return device


@contextmanager
def playing(device: Any, rate: int) -> Iterator[Any]:
    """Yield a stream for mono samples at a rate; wait for the end of the audio. ValueError if it cannot play.

    Its ``write`` takes signed 16 bits, and waits for room in the device's buffer.
    """
    with refused(device):
        stream = device.RawOutputStream(samplerate=rate, channels=1, dtype="int16", latency="low")
        stream.start()
    try:
        with refused(device):
            yield stream
            stream.stop()  # waits for the end of the audio
    except BaseException:
        stream.abort()
        raise
    finally:
        stream.close()


@contextmanager
def refused(device: Any) -> Iterator[None]:
    """Turn the device's errors into ValueError, as sounddevice does for names and numbers."""
    try:
        yield
    except device.PortAudioError as error:
        raise ValueError(f"no sound device can play ({error}): connect one, or write a file with --out") from error

"""Play speech while it is generated, by sounddevice (PortAudio)."""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any

PACKAGE = "sounddevice"


def find_device() -> Any:
    """Return sounddevice's module; ValueError if it, PortAudio or a device is missing."""
    try:
        device = importlib.import_module(PACKAGE)
    except ModuleNotFoundError:
        raise ValueError(
            f"--play needs {PACKAGE}: run {sys.executable} -m pip install {PACKAGE}, or write a file with --out"
        ) from None
    except OSError as error:  # PortAudio is missing
        raise ValueError(f"--play needs PortAudio ({error}): install it, as libportaudio2") from error
    with refused(device):
        device.query_devices(kind="output")
    return device


@contextlib.contextmanager
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


@contextlib.contextmanager
def refused(device: Any) -> Iterator[None]:
    """Turn the device's errors into ValueError, as sounddevice does for names and numbers."""
    try:
        yield
    except device.PortAudioError as error:
        raise ValueError(f"no sound device can play ({error}): connect one, or write a file with --out") from error

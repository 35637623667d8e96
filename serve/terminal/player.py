"""Play speech while it is generated, by sounddevice (PortAudio)."""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any

PACKAGE = "sounddevice"


def find_device() -> Any:
    """Return sounddevice's module; ValueError if it, PortAudio or a device that can play is missing."""
    try:
        device = importlib.import_module(PACKAGE)
    except ModuleNotFoundError:
        raise ValueError(
            f"--play needs {PACKAGE}: run {sys.executable} -m pip install {PACKAGE}, or write a file with --out"
        ) from None
    except OSError as error:  # what it says where PortAudio is not installed
        raise ValueError(f"--play needs PortAudio ({error}): install it, as libportaudio2") from error
    with refused(device):
        device.query_devices(kind="output")
    return device


@contextlib.contextmanager
def playing(device: Any, rate: int) -> Iterator[Any]:
    """Yield the sound device for mono samples at a rate; at the end everything has been played.

    Its ``write`` takes signed 16 bits, and waits until the device has room for them. ValueError if it cannot play.
    """
    with refused(device):
        stream = device.RawOutputStream(samplerate=rate, channels=1, dtype="int16", latency="low")
        stream.start()
    try:
        with refused(device):
            yield stream
            stream.stop()  # which waits for the end of the sound
    except BaseException:
        stream.abort()
        raise
    finally:
        stream.close()


@contextlib.contextmanager
def refused(device: Any) -> Iterator[None]:
    """Turn the device's errors into ValueError; sounddevice has ValueErrors of its own for names and numbers."""
    try:
        yield
    except device.PortAudioError as error:
        raise ValueError(
            f"no sound device can play ({error}): connect one, or write a file with --out"
        ) from error

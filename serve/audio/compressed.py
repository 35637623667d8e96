"""Recordings in formats that libsndfile does not read, with PyAV: m4a, mp4, aac and webm."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

# By suffix, so that FFmpeg guesses nothing from a file: some kinds of files make it open others.
DEMUXERS = {".m4a": "mov", ".mp4": "mov", ".aac": "aac", ".webm": "matroska"}


def is_installed() -> bool:
    """Whether PyAV is there; the server's packages have it."""
    return importlib.util.find_spec("av") is not None


def read_compressed(path: Path) -> tuple[np.ndarray, int]:
    """Return the first sound of a file as float32 ``[C, T]``, and its rate.

    Raises:
        ValueError: it cannot be read, or has no sound.
        OSError: it cannot be opened.
    """
    import av
    import numpy as np

    resampler = av.AudioResampler(format="fltp")  # channels and rate stay as they are
    try:
        with path.open("rb") as file, av.open(file, "r", DEMUXERS[path.suffix.lower()]) as container:
            if not container.streams.audio:
                raise ValueError(f"{path.name} has no sound")
            decoded = [*container.decode(audio=0), None]  # None: what the resampler still has
            frames = [part for frame in decoded for part in resampler.resample(frame)]
    except av.FFmpegError as error:
        raise ValueError(f"{path.name} is damaged ({error})") from error
    if not frames:
        raise ValueError(f"{path.name} has no sound")
    return np.concatenate([frame.to_ndarray() for frame in frames], axis=1), int(frames[0].sample_rate)

"""Read the samples and tags of sound files, with PyAV."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .formats import FILES, RECORDED

if TYPE_CHECKING:
    import numpy as np


def is_installed() -> bool:
    """Return whether PyAV is installed, as with the server's packages and in ComfyUI."""
    return importlib.util.find_spec("av") is not None


def read_compressed(path: Path) -> tuple[np.ndarray, int]:
    """Return the first audio stream of a file (one of RECORDED) as float32 ``[C, T]``, and its rate.

    Raises ValueError if it is damaged or has no sound, and OSError if it cannot be opened.
    """
    import av
    import numpy as np

    resampler = av.AudioResampler(format="fltp")  # channels and rate stay as they are
    try:
        with path.open("rb") as file, _opened(file, RECORDED[path.suffix.lower()]) as container:
            if not container.streams.audio:
                raise ValueError(f"{path.name} has no sound")
            decoded = [*container.decode(audio=0), None]  # None flushes the resampler
            frames = [part for frame in decoded for part in resampler.resample(frame)]
    except av.FFmpegError as error:
        raise ValueError(f"{path.name} is damaged ({error})") from error
    if not frames:
        raise ValueError(f"{path.name} has no sound")
    return np.concatenate([frame.to_ndarray() for frame in frames], axis=1), int(frames[0].sample_rate)


def read_comment(path: Path) -> str:
    """Return the comment inside a sound file, or ""; ValueError if it is none of FILES, or cannot be read."""
    import av

    demuxer = FILES.get(path.suffix.lower())
    if demuxer is None:
        raise ValueError(f"{path.name} is not one of {', '.join(FILES)}: choose a file of Save Speech")
    try:
        with path.open("rb") as file, _opened(file, demuxer) as container:
            return _tags(container).get("comment", "")
    except (OSError, av.FFmpegError) as error:
        raise ValueError(f"{path.name} cannot be read as {demuxer}: choose another file") from error


def read_content(file: IO[bytes], suffix: str) -> tuple[tuple[str, int, int], dict[str, str]]:
    """Return the samples' SHA-256, rate and channels of a sound file with this suffix (one of FILES), and its tags.

    Raises av.FFmpegError if it cannot be read, and IndexError if it has no sound.
    """
    digest = hashlib.sha256()
    with _opened(file, FILES[suffix]) as container:
        stream = container.streams.audio[0]
        tags, rate, channels = _tags(container), stream.rate, stream.channels
        for frame in container.decode(stream):
            digest.update(frame.to_ndarray().tobytes())
    return (digest.hexdigest(), rate, channels), tags


def _opened(file: IO[bytes], demuxer: str) -> Any:
    import av

    return av.open(file, "r", format=demuxer, metadata_errors="replace")


def _tags(container: Any) -> dict[str, str]:
    texts = [container.metadata, *(stream.metadata for stream in container.streams)]
    return {key.lower(): text for one in texts for key, text in one.items()}

"""The table of sound formats (``formats.json``), of which each front end offers its part, and reading with PyAV.

Imports nothing of the pack, and PyAV when it reads: argument parsers import it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Format:
    """One format of sound files and streams.

    Args:
        media_type: of the server's answers; "": the server does not offer the format.
        muxer, codec: FFmpeg's names; no codec: FFmpeg only reads it.
        stream_options: FFmpeg's, for a container that is written while it is sent; a page of opus (in microseconds) per
            packet.
        libsndfile: its names of the format and the subtype; none: it cannot write the format.
        served_by_ffmpeg: whether FFmpeg encodes the server's complete files although libsndfile could.
        rates: the sample rates that it can hold, in Hz; none: any.
        most_kbit_s: the encoder's highest bit rate for one channel; 0: lossless.
        kbit_s: of the server's sound; 0: the encoder's default. LAME's, 32 kb/s, has an SNR of 18 dB on speech, 64 kb/s
            one of 25 (recordings/austen.flac).
        held_s: seconds that FFmpeg or libsndfile buffer of a stream, at most; 0: neither encodes it.
    """

    media_type: str = ""
    muxer: str = ""
    codec: str = ""
    stream_options: dict[str, str] = field(default_factory=dict)
    libsndfile: Sequence[str] | None = None
    served_by_ffmpeg: bool = False
    rates: Sequence[int] = ()
    most_kbit_s: int = 0
    kbit_s: int = 0
    held_s: float = 0.0

    @property
    def lossy(self) -> bool:
        return self.most_kbit_s > 0


ROWS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
FORMATS = {name: Format(**row) for name, row in ROWS.items()}
# Media types of the server's formats.
SERVED = {name: one.media_type for name, one in FORMATS.items() if one.media_type}
# Files that the command line writes, by suffix, with FFmpeg's name to read them: guessing could open other files.
FILES = {f".{name}": one.muxer for name, one in FORMATS.items() if one.libsndfile}
# Formats of Save Speech, with metadata inside.
TAGGED = {name: one for name, one in FORMATS.items() if one.libsndfile and one.codec}
# Recordings that libsndfile cannot read, by suffix, with FFmpeg's name to read them.
RECORDED = {".m4a": "mov", ".mp4": "mov", ".aac": "aac", ".webm": "matroska"}
# Formats that stream without an encoder.
PLAIN_STREAMS = tuple(name for name, one in FORMATS.items() if one.media_type and not one.held_s)


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

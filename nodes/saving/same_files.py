"""Whether a saved file holds what would be saved again: the same sound, and the same facts of its speech.

Its bytes do not tell. The workflow inside changes with every other line of a script, and opus files begin with a random
number.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from .sound_files import DEMUXERS

TOLD = ("title", "artist", "comment")  # what is said of the speech; see ``Recording.tags``
OF_THE_ENCODER = "encoder"


@dataclass(frozen=True)
class Content:
    """What a sound file holds: a digest of its samples, its rate in Hz, its channels, and its tags.

    Of tags that are not TOLD only the names count: whether there is a workflow, not which.
    """

    samples: str
    sample_rate: int
    channels: int
    tags: tuple[tuple[str, str], ...]


def is_same(path: Path, data: bytes) -> bool:
    """Return whether there is a file that holds what the new file ``data`` of the same kind does."""
    import av

    if not path.is_file():
        return False
    old = path.read_bytes()
    if old == data:
        return True
    demuxer = DEMUXERS[path.suffix]
    try:
        before = read_content(old, demuxer)
    except (av.FFmpegError, IndexError):  # damaged, or without sound
        return False
    return before == read_content(data, demuxer)


def read_content(data: bytes, demuxer: str) -> Content:
    """Return what a sound file holds.

    Raises:
        av.FFmpegError: it cannot be read.
        IndexError: it has no sound.
    """
    import av

    digest = hashlib.sha256()
    with av.open(BytesIO(data), mode="r", format=demuxer, metadata_errors="replace") as container:
        stream = container.streams.audio[0]
        texts = [container.metadata, *(one.metadata for one in container.streams)]
        rate, channels = stream.rate, stream.channels
        for frame in container.decode(stream):
            digest.update(frame.to_ndarray().tobytes())
    tags = {key.lower(): text for one in texts for key, text in one.items()}
    told = {key: text if key in TOLD else "" for key, text in tags.items() if key != OF_THE_ENCODER}
    return Content(digest.hexdigest(), rate, channels, tuple(sorted(told.items())))

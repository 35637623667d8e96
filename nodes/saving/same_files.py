"""Whether a saved file holds what would be saved again: the same sound, and the same facts of its speech.

Its bytes do not tell. The workflow inside changes with every other line of a script, and opus files begin with a random
number.
"""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

from ...morph.audio.reader import Content, read_content

TOLD = ("title", "artist", "comment")  # what is said of the speech; see ``Recording.tags``
OF_THE_ENCODER = "encoder"


def is_same(path: Path, data: bytes) -> bool:
    """Return whether there is a file that holds what the new file ``data`` of the same kind does."""
    import av

    if not path.is_file():
        return False
    old = path.read_bytes()
    if old == data:
        return True
    try:
        before = _compared(old, path.suffix)
    except (av.FFmpegError, IndexError):  # damaged, or without sound
        return False
    return before == _compared(data, path.suffix)


def _compared(data: bytes, suffix: str) -> Content:
    """Of tags that are not TOLD only the names count: whether there is a workflow, not which."""
    content = read_content(BytesIO(data), suffix)
    tags = {key: text if key in TOLD else "" for key, text in content.tags.items() if key != OF_THE_ENCODER}
    return replace(content, tags=tags)

"""Compare a saved file with its replacement: the same sound, and the same facts of its speech.

Bytes do not tell: the workflow inside changes with other lines of a script, and opus files begin with a random
number.
"""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO
from pathlib import Path

from ...morph.audio.reader import Content, read_content

TOLD = ("title", "artist", "comment")  # facts about the speech; see ``Recording.tags``
OF_THE_ENCODER = "encoder"


def is_same(path: Path, data: bytes) -> bool:
    """Return whether a file has the content of the new file ``data`` of the same kind."""
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
    """Return the content with only the names of tags that are not TOLD: whether there is a workflow, not which."""
    content = read_content(BytesIO(data), suffix)
    tags = {key: text if key in TOLD else "" for key, text in content.tags.items() if key != OF_THE_ENCODER}
    return replace(content, tags=tags)

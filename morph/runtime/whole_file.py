"""Files that are written completely or not at all."""

from __future__ import annotations

import secrets
from pathlib import Path


def name_beside(path: Path) -> Path:
    """Return a path in the folder of ``path`` for a file that then takes its place.

    The name is random: two processes never share one, and nobody can put a link there beforehand.
    """
    return path.with_name(f".{secrets.token_hex(8)}.part")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or replace the one that is there once all is written. A link is replaced, never followed.

    Raises:
        OSError: it cannot be written; the file that was there is unchanged, and nothing else is left.
    """
    unfinished = name_beside(path)
    try:
        with unfinished.open("xb") as file:
            file.write(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)

"""Files that are read or written completely, or not at all."""

import os
import secrets
import stat
from pathlib import Path

FileState = tuple[int, int] | None  # modification time in ns and bytes; None: there is no file


class TooLarge(ValueError):
    """A file has more bytes than its content can have."""


def read_whole(path: Path, most_bytes: int) -> bytes:
    """Return the content of a file, opened once: another may replace it. Raise OSError or ``TooLarge``."""
    with path.open("rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > most_bytes:
            raise TooLarge(f"{path.name} is larger than {most_bytes / 1e6:.0f} MB")
        return file.read(size)


def file_state(path: Path) -> FileState:
    """Return what changes when a file is written; None if there is none that can be looked at."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None


def name_beside(path: Path) -> Path:
    """Return a path beside ``path`` for a file that later replaces it."""
    # The name is random: two processes never share one, and nobody can put a link there beforehand.
    return path.with_name(f".{secrets.token_hex(8)}.part")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or replace the existing one once all is written. A link is replaced, never followed."""
    # After an OSError the existing file is unchanged, and nothing else is left.
    unfinished = name_beside(path)
    try:
        with unfinished.open("xb") as file:
            file.write(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)

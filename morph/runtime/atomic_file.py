"""Read files of limited size, and write files atomically."""

import os
import secrets
import stat
from pathlib import Path

FileState = tuple[int, int] | None  # modification time in ns and bytes; None: there is no file


class TooLarge(ValueError):
    """A file is larger than its content can be."""


def read_limited(path: Path, most_bytes: int) -> bytes:
    """Return a file's content; raise OSError, or ``TooLarge`` above ``most_bytes``."""
    # Its size is that of the open file: another process may replace it.
    with path.open("rb") as file:
        if (size := os.fstat(file.fileno()).st_size) > most_bytes:
            raise TooLarge(f"{path.name} is larger than {most_bytes / 1e6:.0f} MB")
        return file.read(size)


def file_state(path: Path) -> FileState:
    """Return a value that changes when a file is written; None if it is missing or cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None


def name_beside(path: Path) -> Path:
    """Return a path beside ``path`` for a file that later replaces it."""
    # A random name: two processes never share one, and nobody can place a link there beforehand.
    return path.with_name(f".{secrets.token_hex(8)}.part")


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file atomically: after an OSError the existing one is unchanged. A link is replaced, never followed."""
    unfinished = name_beside(path)
    try:
        with unfinished.open("xb") as file:
            file.write(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)

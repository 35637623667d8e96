"""A folder that one run has for itself: two runs would write over each other's manifest."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

LOCK = "manifest.lock"  # on Windows, where a folder itself cannot be locked


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a folder, until the end or until the program dies.

    Raises:
        ValueError: if another run has it.
    """
    descriptor = _open(folder)
    try:
        try:
            _lock(descriptor)
        except (BlockingIOError, PermissionError) as error:
            raise ValueError(
                f"folder {folder} is in use by another run: wait for its end, or choose another with --out"
            ) from error
        except OSError as error:  # some network drives have no locks
            log.info("%s cannot be locked: %s", folder, error)
        yield
    finally:
        os.close(descriptor)
        if sys.platform == "win32":
            (folder / LOCK).unlink(missing_ok=True)


def _open(folder: Path) -> int:
    if sys.platform == "win32":
        return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    return os.open(folder, os.O_RDONLY)


def _lock(descriptor: int) -> None:
    """Lock what is open; BlockingIOError (PermissionError on Windows) if another process has locked it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

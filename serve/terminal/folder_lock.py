"""Lock a folder: two runs would overwrite each other's manifest."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

LOCK = "manifest.lock"  # on Windows, where a folder itself cannot be locked


def refuse(folder: Path) -> None:
    raise ValueError(f"folder {folder} is in use by another run: wait for its end, or choose another with --out")


@contextmanager
def exclusive(folder: Path, when_taken: Callable[[Path], None] = refuse) -> Iterator[None]:
    """Lock a folder until the end, or until the program dies.

    ``when_taken`` is called in a loop while another run has it: it sleeps, or raises.
    """
    descriptor = _open(folder)
    try:
        while not _is_locked(descriptor, folder):
            when_taken(folder)
        yield
    finally:
        os.close(descriptor)
        if sys.platform == "win32":
            with suppress(OSError):  # another run has opened it
                (folder / LOCK).unlink()


def _is_locked(descriptor: int, folder: Path) -> bool:
    """Try to lock the open folder; return False if another run has it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the second on Windows
        return False
    except OSError as error:  # some network drives have no locks
        log.info("%s cannot be locked: %s", folder, error)
    return True


def _open(folder: Path) -> int:
    if sys.platform == "win32":
        return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    return os.open(folder, os.O_RDONLY)

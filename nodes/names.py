"""File names that users type: no name may leave its folder or fail on another operating system; and new files."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from ..morph.text.names import check_name as check_name
from ..morph.text.names import confine as confine


def write_whole(file: BinaryIO, path: Path, data: bytes) -> None:
    """Write and close a new file; delete it if writing fails."""
    try:
        with file:
            file.write(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise

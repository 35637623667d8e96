"""Write files that users name: complete or not at all."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from ...morph.text.names import check_name as check_name
from ...morph.text.names import confine as confine
from ...morph.text.names import file_names as file_names


def write_whole(file: BinaryIO, path: Path, data: bytes) -> None:
    """Write and close a new file; delete it if writing fails."""
    try:
        with file:
            file.write(data)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def replace_all(files: Mapping[Path, bytes]) -> None:
    """Replace files; all are written beside the old ones first, so that an error changes none."""
    ready: dict[Path, Path] = {}
    try:
        for path, data in files.items():
            beside = path.with_name(f".{secrets.token_hex(8)}.part")
            write_whole(beside.open("xb"), beside, data)
            ready[beside] = path
        for beside, path in ready.items():
            os.replace(beside, path)
    finally:
        for beside in ready:
            beside.unlink(missing_ok=True)

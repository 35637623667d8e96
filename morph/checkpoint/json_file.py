"""Read small untrusted JSON files, without blocking, filling the memory or unexpected exceptions."""

import json
import stat
from pathlib import Path
from typing import Any

from ..runtime.atomic_file import read_limited

MOST_BYTES = 4 * 1024 * 1024  # an index of 1000 weights has 0.1 MB


def read_json(path: Path) -> Any:
    """Return a JSON file's value; OSError if it cannot be read.

    Raises ValueError, beginning with the file's name, if it is not a regular file (opening a pipe would block), larger
    than MOST_BYTES, or not JSON (NaN and Infinity count as invalid).
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path.name} is not a file")
    raw = read_limited(path, MOST_BYTES)
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError(f"{path.name} is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{path.name} is not JSON ({error})") from error


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON file's object; errors as ``read_json``, and ValueError for any other value."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} contains a {type(value).__name__} instead of an object")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")

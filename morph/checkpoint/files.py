"""Read and write a checkpoint's files: untrusted JSON, and safetensors with their metadata; pickles are never read.

A file cannot block, fill the memory or raise unexpected exceptions. The functions import safetensors, because a command
line is read without packages.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..runtime.atomic_file import read_limited, write_atomic

if TYPE_CHECKING:
    import torch

MOST_BYTES = 4 * 1024 * 1024  # of JSON: an index of 1000 weights has 0.1 MB
HEADER_START = 8  # in a safetensors file, after the header's length


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


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors to ``path`` atomically, and create its folder.

    The file's mode follows the umask (safetensors' own ``save_file`` creates it with 0600).
    """
    from safetensors.torch import save

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, dict(metadata)))


def read_tensors(path: Path, most_bytes: int) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return a file's tensors and metadata; SafetensorError, OSError, or ValueError above ``most_bytes``."""
    return unpack_tensors(read_limited(path, most_bytes))


def unpack_tensors(content: bytes) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the tensors and the metadata in a file's content; SafetensorError if it is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(content), _metadata_in(content)  # ``load`` checks the header
    except KeyError as error:
        raise SafetensorError(f"a tensor has the type {error}") from error


def unpack_parts(content: bytes) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return each tensor's "dtype", "shape" and "data", and the metadata, without torch."""
    from safetensors import deserialize

    return dict(deserialize(content)), _metadata_in(content)


def _metadata_in(content: bytes) -> dict[str, str]:
    header = json.loads(content[HEADER_START : HEADER_START + int.from_bytes(content[:HEADER_START], "little")])
    return header.get("__metadata__") or {}


def read_metadata(path: Path) -> dict[str, str]:
    """Return a file's metadata without reading its tensors; SafetensorError or OSError if the header is damaged."""
    from safetensors import safe_open

    with safe_open(path, framework="np") as file:  # for "pt" it would open the file again
        return file.metadata() or {}


def read_tensor(files: Sequence[Path], name: str) -> torch.Tensor:
    """Return a tensor of a checkpoint's weight files; ValueError if none has it, SafetensorError or OSError."""
    from safetensors import safe_open

    for file in files:
        with safe_open(file, framework="pt") as weights:
            if name in weights.keys():  # noqa: SIM118  (not a mapping)
                return weights.get_tensor(name)
    raise ValueError(f"checkpoint {files[0].parent.name} lacks {name}: download all of it again")

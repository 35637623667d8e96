"""Read and atomically write safetensors files and their metadata; pickles are never read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, deserialize, safe_open

from ..runtime.atomic_file import write_atomic
from .find import weight_files

if TYPE_CHECKING:
    import torch

HEADER_START = 8  # after the header's length


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors to ``path`` atomically, and create its folder.

    The file's mode follows the umask (safetensors' own ``save_file`` creates it with 0600).
    """
    from safetensors.torch import save

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, dict(metadata)))


def unpack_tensors(content: bytes) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the tensors and the metadata in a file's content; SafetensorError if it is damaged."""
    from safetensors.torch import load

    try:
        return load(content), _metadata_in(content)  # ``load`` checks the header
    except KeyError as error:
        raise SafetensorError(f"a tensor has the type {error}") from error


def unpack_parts(content: bytes) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Return each tensor's "dtype", "shape" and "data", and the metadata, without torch."""
    return dict(deserialize(content)), _metadata_in(content)


def _metadata_in(content: bytes) -> dict[str, str]:
    header = json.loads(content[HEADER_START : HEADER_START + int.from_bytes(content[:HEADER_START], "little")])
    return header.get("__metadata__") or {}


def read_metadata(path: Path) -> dict[str, str]:
    """Return a file's metadata without reading its tensors; SafetensorError or OSError if the header is damaged."""
    with safe_open(path, framework="np") as file:  # for "pt" it would open the file again
        return file.metadata() or {}


def read_tensor(checkpoint: Path, name: str) -> torch.Tensor:
    """Return a tensor of a checkpoint's weight files; ValueError if none has it, SafetensorError or OSError."""
    for file in weight_files(checkpoint):
        with safe_open(file, framework="pt") as weights:
            if name in weights.keys():  # noqa: SIM118  (not a mapping)
                return weights.get_tensor(name)
    raise ValueError(f"checkpoint {checkpoint.name} lacks {name}: download all of it again")

"""Safetensors files with texts in their metadata, replaced atomically; never pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save

from ..runtime.whole_file import write_whole

HEADER_START = 8  # before it: its length


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors to ``path``, creating its folder; an existing file is replaced only after all is written.

    The file's mode follows the umask (safetensors' own ``save_file`` creates it with 0600).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(
        path, save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, dict(metadata))
    )


def unpack_tensors(content: bytes) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the tensors and the metadata in the content of a file; SafetensorError if it is damaged."""
    try:
        tensors = load(content)  # checks the header
    except KeyError as error:
        raise SafetensorError(f"a tensor has the type {error}") from error
    header = json.loads(
        content[HEADER_START : HEADER_START + int.from_bytes(content[:HEADER_START], "little")]
    )
    return tensors, header.get("__metadata__") or {}


def read_metadata(path: Path) -> dict[str, str]:
    """Return a file's metadata without reading its tensors; SafetensorError or OSError if the header is damaged."""
    with safe_open(path, framework="np") as file:  # for "pt" it would open the file again
        return file.metadata() or {}

"""Safetensors files with texts in their metadata, replaced atomically; never pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save

from ..runtime.whole_file import write_whole


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors to ``path``, creating its folder; an existing file is replaced only after all is written.

    The file's mode follows the umask (safetensors' own ``save_file`` creates it with 0600).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(
        path, save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, dict(metadata))
    )


def read_tensors(path: Path, kind: str | None = None) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return a file's tensors, on the CPU, and its metadata, both of one state of the file.

    The tensors are copies: ``get_tensor`` returns views of the mapped file, which change if the file is written in
    place, and crash the process if it is truncated.

    Args:
        path: the file.
        kind: the "format" in its metadata; no tensors are read from a file with another, which may have gigabytes.

    Raises:
        SafetensorError, OSError: for a damaged file.
    """
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        names = file.keys() if kind in (None, metadata.get("format")) else ()
        return {name: file.get_tensor(name).clone() for name in names}, metadata


def read_metadata(path: Path) -> dict[str, str]:
    """Return a file's metadata without reading its tensors; SafetensorError or OSError if the header is damaged."""
    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}

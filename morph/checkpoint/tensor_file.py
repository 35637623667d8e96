"""Safetensors files with texts in their metadata, replaced atomically; never pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors to ``path``, creating its folder; an existing file is replaced only after all is written.

    The file's mode follows the umask (safetensors' own ``save_file`` creates it with 0600).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    content = save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, dict(metadata))
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return a file's tensors, on the CPU, and its metadata.

    The tensors are copies: ``get_tensor`` returns views of the mapped file, which change if the file is written in
    place, and crash the process if it is truncated.

    Raises:
        SafetensorError, OSError: for a damaged file.
    """
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        return {key: file.get_tensor(key).clone() for key in file.keys()}, metadata  # noqa: SIM118  (not a dict)


def read_metadata(path: Path) -> dict[str, str]:
    """Return a file's metadata without reading its tensors; SafetensorError or OSError if the header is damaged."""
    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}

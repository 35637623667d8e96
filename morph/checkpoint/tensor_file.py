"""Safetensors files with words in their metadata, written whole or not at all; never pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors to ``path``, whose folder is made; a file of that name is replaced only when all is written.

    The file gets the mode that the umask gives (safetensors' own ``save_file`` makes it 0600).
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
    """A file's tensors, on the CPU, and its metadata; SafetensorError or OSError when it is damaged.

    The tensors are copies: ``get_tensor`` gives views of the mapped file, which change when it is written in place,
    and end the process when it is truncated.
    """
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        return {key: file.get_tensor(key).clone() for key in file.keys()}, metadata  # noqa: SIM118  (not a dict)


def read_metadata(path: Path) -> dict[str, str]:
    """A file's metadata, without its tensors; SafetensorError or OSError when its header is damaged."""
    with safe_open(path, framework="pt") as file:
        return file.metadata() or {}

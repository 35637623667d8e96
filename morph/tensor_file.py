"""Safetensors files with words in their metadata, written whole or not at all; never pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors to ``path``, whose folder is made; what lies there stays when it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".part")
    whole = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(whole, unfinished, metadata=dict(metadata))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """A file's tensors, on the CPU, and its metadata; SafetensorError or OSError when it is damaged."""
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        return {key: file.get_tensor(key) for key in file.keys()}, metadata  # noqa: SIM118  (not a dict)

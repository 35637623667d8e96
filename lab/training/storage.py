"""Files that training writes: weights in parts small enough to transfer, the state to resume from, and wavs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

PART_BYTES = 15 << 20  # fits transfers that are limited to 16 MiB per file


def write_parts(folder: Path, tensors: Mapping[str, torch.Tensor]) -> list[Path]:
    """Write ``part-0.safetensors``, ... of at most 15 MiB each, in bf16; parts of an earlier call are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("part-*.safetensors"):
        old.unlink()
    parts: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().to("cpu", torch.bfloat16).contiguous().clone()
        if size and size + tensor.nbytes > PART_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += tensor.nbytes
    files = [folder / f"part-{index}.safetensors" for index in range(len(parts))]
    for index, (file, part) in enumerate(zip(files, parts, strict=True)):
        save_file(part, file, metadata={"part": str(index), "parts": str(len(parts))})
    return files


def read_parts(folder: Path) -> dict[str, torch.Tensor]:
    """Read what ``write_parts`` wrote.

    Raises:
        ValueError: there is no part, or one is missing.
    """
    tensors: dict[str, torch.Tensor] = {}
    found = sorted(folder.glob("part-*.safetensors"))
    expected = 1
    for path in found:
        with safe_open(path, "pt") as file:
            expected = int(file.metadata()["parts"])
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
    if len(found) != expected:
        raise ValueError(f"{folder} has {len(found)} of {expected} part-*.safetensors: copy them again")
    return tensors


def save_state(
    path: Path, groups: Mapping[str, Mapping[str, torch.Tensor]], about: Mapping[str, str]
) -> None:
    """Write groups of tensors and strings atomically; group names must not contain "/"."""
    tensors = {f"{group}/{name}": value for group, values in groups.items() for name, value in values.items()}
    unfinished = path.with_suffix(".part")
    save_file(
        {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()},
        unfinished,
        metadata=dict(about),
    )
    unfinished.replace(path)


def load_state(path: Path) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, str]]:
    """Read what ``save_state`` wrote, to the CPU; raises ValueError if the file does not exist."""
    if not path.is_file():
        raise ValueError(f"{path} does not exist: train without --resume first")
    groups: dict[str, dict[str, torch.Tensor]] = {}
    with safe_open(path, "pt") as file:
        about = dict(file.metadata())
        for key in file.keys():  # noqa: SIM118  (not a dict)
            group, _, name = key.partition("/")
            groups.setdefault(group, {})[name] = file.get_tensor(key)
    return groups, about


def read_about(path: Path) -> dict[str, str]:
    """Return the strings of a state that ``save_state`` wrote, without reading its tensors."""
    with safe_open(path, "pt") as file:
        return dict(file.metadata())


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return an optimizer's state as tensors by name, without its options, which come from the config."""
    state = optimizer.state_dict()["state"]
    return {f"{index}.{key}": value for index, values in state.items() for key, value in values.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor]) -> None:
    """Load the state that ``optimizer_tensors`` returned."""
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def write_wav(path: Path, audio: np.ndarray, sample_rate: int) -> None:
    """Write 16-bit PCM, ``[T]``; missing folders are created."""
    import soundfile

    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, audio, sample_rate, subtype="PCM_16")

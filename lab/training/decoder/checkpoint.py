"""The decoder's exported weights: averaged, bf16, in small files, with the config."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from ..storage import read_parts, write_parts
from .config import Config, config_from

ABOUT = "weights.json"


@dataclass(frozen=True)
class Weights:
    """Averaged weights and the discriminators by name, and the training they come from."""

    config: Config
    step: int
    tensors: dict[str, torch.Tensor]


def write_weights(folder: Path, weights: Weights) -> list[Path]:
    """Write parts of at most 15 MiB and ``weights.json``; return the files."""
    files = write_parts(folder, weights.tensors)
    described = folder / ABOUT
    about = {"step": weights.step, "config": weights.config.as_json()}
    described.write_text(json.dumps(about, indent=1), encoding="utf-8")
    return [*files, described]


def read_weights(folder: Path) -> Weights:
    """Read what ``write_weights`` wrote; raises ValueError if the folder has no weights, or only some of them."""
    described = folder / ABOUT
    if not described.is_file():
        raise ValueError(f"{folder} contains no {ABOUT}: choose the training's weights folder")
    about = json.loads(described.read_text(encoding="utf-8"))
    return Weights(config_from(about["config"]), about["step"], read_parts(folder))

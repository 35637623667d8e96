"""The codec's exported weights: averaged, bf16, in small files, with the config and the phone symbols."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from ..storage import read_parts, write_parts
from .config import Config, config_from
from .model import Codec

WEIGHTS = "weights"
ABOUT = "weights.json"


@dataclass(frozen=True)
class Weights:
    """Averaged weights by name (``codes``: the code vectors), and the training they come from."""

    config: Config
    symbols: tuple[str, ...]
    step: int
    tensors: dict[str, torch.Tensor]


def write_weights(folder: Path, weights: Weights) -> list[Path]:
    """Write parts of at most 15 MiB and ``weights.json``; return the files."""
    files = write_parts(folder, weights.tensors)
    about = {"step": weights.step, "symbols": list(weights.symbols), "config": weights.config.as_json()}
    described = folder / ABOUT
    described.write_text(json.dumps(about, ensure_ascii=False, indent=1), encoding="utf-8")
    return [*files, described]


def read_weights(folder: Path) -> Weights:
    """Read what ``write_weights`` wrote; raises ValueError if the folder has no weights, or only some of them."""
    described = folder / ABOUT
    if not described.is_file():
        raise ValueError(f"{folder} contains no {ABOUT}: choose the training's weights folder")
    about = json.loads(described.read_text(encoding="utf-8"))
    return Weights(config_from(about["config"]), tuple(about["symbols"]), about["step"], read_parts(folder))


@torch.no_grad()
def put_weights(codec: Codec, tensors: dict[str, torch.Tensor]) -> None:
    """Copy averaged weights into a codec; raises ValueError if a tensor is missing."""
    followed = codec.averaged()
    if missing := sorted(followed.keys() - tensors.keys()):
        raise ValueError(
            f"the weights lack {missing[0]} and {len(missing) - 1} more: they belong to another shape"
        )
    for name, value in followed.items():
        value.copy_(tensors[name])
    quantiser = codec.quantiser
    quantiser.use.fill_(1)
    quantiser.sums.copy_(quantiser.vectors)

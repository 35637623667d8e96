"""LoRA on linear layers: train them beside a model that stays as it is, and write them as peft does."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import torch

from ..checkpoint.adapter_file import WEIGHTS
from ..checkpoint.find import ADAPTER
from ..checkpoint.tensor_file import write_tensors
from ..model.adapter import LowRank, replace_layers
from ..model.model import Model
from ..model.network.modules import Network
from ..runtime.atomic_file import write_atomic

# Fields of peft's config that say "plain LoRA"; peft has defaults for all others.
PLAIN = {"peft_type": "LORA", "bias": "none", "lora_dropout": 0.0, "inference_mode": True}


class LoraLinear(torch.nn.Module):
    """A linear layer with a low-rank update that is trained in float32, begun as peft does."""

    def __init__(self, base: torch.nn.Linear, rank: int):
        super().__init__()
        new: Any = {"device": base.weight.device, "dtype": torch.float32}
        self.base = base
        self.down = torch.nn.Parameter(torch.empty(rank, base.in_features, **new))
        self.up = torch.nn.Parameter(torch.zeros(base.out_features, rank, **new))
        torch.nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        update = states.float() @ self.down.T @ self.up.T
        known: torch.Tensor = self.base(states)
        return known + update.to(known.dtype)

    def part(self) -> LowRank:
        """Return a copy of the update, on the CPU."""
        up, down = (one.detach().cpu().clone() for one in (self.up, self.down))
        return LowRank(up, down, 1.0)


def add_lora(model: Model, pattern: str, rank: int) -> tuple[Network, dict[str, LoraLinear]]:
    """Return a network with trained layers in place of those whose names match, and these; ``model`` stays as it is."""
    layers = {
        name: LoraLinear(layer, rank)
        for name, layer in model.network.named_modules()
        if re.fullmatch(pattern, name) and isinstance(layer, torch.nn.Linear)
    }
    network: Any = replace_layers(model.network, layers)
    return network, layers


def write_adapter(folder: Path, layers: dict[str, LoraLinear], base: str) -> None:
    """Write an adapter's two files; ``base`` is the checkpoint's name. OSError if they cannot be written."""
    tensors = {}
    for name, layer in layers.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = layer.down.detach()
        tensors[f"base_model.model.{name}.lora_B.weight"] = layer.up.detach()
    rank = len(next(iter(layers.values())).down)
    config = {
        **PLAIN,
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": rank,  # the strength is alpha over r, 1
        "target_modules": sorted(layers),
    }
    write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    write_atomic(folder / ADAPTER, json.dumps(config, indent=2).encode())

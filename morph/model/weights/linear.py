"""Linear layers in full precision or INT8: the only module that distinguishes them."""

from typing import TypeAlias

import torch
from torch.nn import functional

from .int8 import Int8Weight

Weight: TypeAlias = "torch.Tensor | Int8Weight"


def linear(states: torch.Tensor, weight: Weight) -> torch.Tensor:
    return weight.linear(states) if isinstance(weight, Int8Weight) else functional.linear(states, weight)


def split_scales(weight: Weight) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return a weight's values and, for INT8, its scales (else None), as the kernels take them."""
    return (weight.values, weight.scale) if isinstance(weight, Int8Weight) else (weight, None)


def tensors_of(weight: Weight) -> tuple[torch.Tensor, ...]:
    return (weight.values, weight.scale) if isinstance(weight, Int8Weight) else (weight,)

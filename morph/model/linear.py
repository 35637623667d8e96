"""Products with weights that may be full or INT8: one place that knows which."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch.nn import functional

from .int8 import Int8Weight

Weight: TypeAlias = "torch.Tensor | Int8Weight"


def multiply(states: torch.Tensor, weight: Weight) -> torch.Tensor:
    """``states W^T``: ``[..., K]`` and ``[N, K]`` to ``[..., N]``."""
    return weight.multiply(states) if isinstance(weight, Int8Weight) else functional.linear(states, weight)


def crossbar(heads: Weight, states: torch.Tensor) -> torch.Tensor:
    """Logits ``[B, G, V]`` of G groups at once.

    Args:
        heads: ``[G, V, H]``.
        states: ``[B, H]``, or one for each group ``[B, G, H]``.
    """
    alone = states.dim() == 2
    if not isinstance(heads, Int8Weight):
        return torch.einsum("gvh,bh->bgv" if alone else "gvh,bgh->bgv", heads, states)
    if alone:
        return heads.flatten(0, 1).multiply(states).unflatten(-1, heads.shape[:2])
    return torch.stack([heads[group].multiply(states[:, group]) for group in range(len(heads))], dim=1)


def split_scales(weight: Weight) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Numbers and, of INT8, their scales: for the kernels."""
    return (weight.values, weight.scale) if isinstance(weight, Int8Weight) else (weight, None)


def tensors_of(weight: Weight) -> tuple[torch.Tensor, ...]:
    """What holds a weight's numbers."""
    return (weight.values, weight.scale) if isinstance(weight, Int8Weight) else (weight,)

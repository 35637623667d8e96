"""The key/value cache of the eager engine."""

from __future__ import annotations

import torch


class KeyValueCache:
    """Keys and values of every layer, ``[B, kv_heads, T, head_dim]``.

    Grows by concatenation, like transformers' ``DynamicCache``, and has the same memory layout, so that the same
    kernels return the same bits.
    """

    def __init__(self, layers: int):
        self.keys: list[torch.Tensor | None] = [None] * layers
        self.values: list[torch.Tensor | None] = [None] * layers

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append a layer's new keys and values to its old ones; return all."""
        old_keys, old_values = self.keys[layer], self.values[layer]
        if old_keys is not None and old_values is not None:
            keys = torch.cat((old_keys, keys), dim=2)
            values = torch.cat((old_values, values), dim=2)
        self.keys[layer], self.values[layer] = keys, values
        return keys, values

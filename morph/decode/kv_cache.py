"""A key/value cache with the one method that upstream's attention calls."""

from __future__ import annotations

from typing import Any

import torch


class KeyValueCache:
    """Keys and values of every layer, ``[B, kv_heads, T, head_dim]`` each; stands where a transformers ``Cache`` would.

    Grows by concatenation, as transformers' ``DynamicCache``, whose memory layout it shares (so that the same
    kernels give the same bits), but with a third of its calls a layer: at batch 1 calls are what a frame costs.
    """

    def __init__(self, layers: int):
        self.keys: list[torch.Tensor | None] = [None] * layers
        self.values: list[torch.Tensor | None] = [None] * layers

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, _: dict[str, Any] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Put a layer's new keys and values behind its old ones; give all of them."""
        old_keys, old_values = self.keys[layer], self.values[layer]
        if old_keys is not None and old_values is not None:
            keys = torch.cat((old_keys, keys), dim=2)
            values = torch.cat((old_values, values), dim=2)
        self.keys[layer], self.values[layer] = keys, values
        return keys, values

    def crop(self, length: int) -> None:
        """Forget all positions from ``length`` on."""
        self.keys = [None if keys is None else keys[:, :, :length] for keys in self.keys]
        self.values = [None if values is None else values[:, :, :length] for values in self.values]

    def take(self, rows: torch.Tensor) -> None:
        """Go on with these rows (int64 ``[N]``) of the batch, each as often as it is named."""
        self.keys = [None if keys is None else keys[rows] for keys in self.keys]
        self.values = [None if values is None else values[rows] for values in self.values]

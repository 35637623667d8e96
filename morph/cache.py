"""A key/value cache with its room taken in advance, that upstream's layers write to and read from."""

from __future__ import annotations

from typing import Any

import torch


class KeyValueCache:
    """Keys and values of all layers, ``[layers, B, kv_heads, room, head_dim]``, filled from the left.

    Stands where transformers' ``Cache`` stands in a layer's call: of that class upstream's attention uses
    ``update`` alone. The caller sets ``length`` before a pass: tokens are written from there on.
    """

    def __init__(self, config: Any, batch: int, room: int, device: torch.device, dtype: torch.dtype):
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, batch, config.num_key_value_heads, room, head_dim)
        self.keys = torch.empty(shape, device=device, dtype=dtype)
        self.values = torch.empty(shape, device=device, dtype=dtype)
        self.length = 0

    @property
    def room(self) -> int:
        """How many tokens fit."""
        return self.keys.shape[3]

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, _: dict[str, Any] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write ``[B, kv_heads, T, head_dim]`` behind the first ``length`` tokens; give all up to there."""
        end = self.length + keys.shape[2]
        self.keys[layer, :, :, self.length : end] = keys
        self.values[layer, :, :, self.length : end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def grow(self, room: int) -> None:
        """Make room for ``room`` tokens, keeping what is there."""
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_empty((*old.shape[:3], room, old.shape[4]))
            new[:, :, :, : self.length] = old[:, :, :, : self.length]
            setattr(self, name, new)

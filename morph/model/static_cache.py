"""A key/value cache of fixed size, and the three ways in which a pass writes to it and reads from it.

Shapes and addresses never change, so a captured graph can use it. Every line starts at position 0 of its own row;
what lies behind a line's last position is never attended to, and is overwritten as the line grows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class StaticCache:
    """Keys and values of every layer, ``[layers, B, kv_heads, T, head_dim]`` each."""

    keys: torch.Tensor
    values: torch.Tensor

    @classmethod
    def allocate(
        cls, layers: int, batch: int, kv_heads: int, length: int, head_dim: int, like: torch.Tensor
    ) -> StaticCache:
        """An empty cache with the dtype and on the device of ``like``.

        Zeros, not whatever the memory held: a masked position still takes part in the products, and a NaN there
        would spread.
        """
        shape = (layers, batch, kv_heads, length, head_dim)
        return cls(like.new_zeros(shape), like.new_zeros(shape))

    @property
    def length(self) -> int:
        """Positions a line."""
        return self.keys.shape[3]

    def window(self, length: int) -> StaticCache:
        """The first ``length`` positions, in place."""
        return StaticCache(self.keys[:, :, :, :length], self.values[:, :, :, :length])

    def clear(self, rows: torch.Tensor) -> None:
        """Zeros in lines' rows (int64 ``[N]``): the last one may have left NaN, which no mask can hide."""
        self.keys.index_fill_(1, rows, 0)
        self.values.index_fill_(1, rows, 0)

    def copy_from(self, other: StaticCache) -> None:
        """Take over a shorter cache of the same lines."""
        self.keys[:, :, :, : other.length].copy_(other.keys)
        self.values[:, :, :, : other.length].copy_(other.values)


class FillView:
    """Prompts of some rows, from position 0 on: int64 ``rows`` ``[N]`` on the device, each once.

    Reads nothing, the pass is causal among the prompts themselves: it cannot see the padding to the right of a
    shorter one, and touches no other row.
    """

    mask: torch.Tensor | None = None

    def __init__(self, cache: StaticCache, rows: torch.Tensor):
        self.cache, self.rows = cache, rows

    def update(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a layer's keys and values ``[N, kv_heads, T, head_dim]``, and give them back."""
        part = self.cache.window(keys.shape[2])
        part.keys[layer].index_copy_(0, self.rows, keys)
        part.values[layer].index_copy_(0, self.rows, values)
        return keys, values


class SpanView:
    """The same positions for all lines: some from 0 on (causal), or one. Reads ``0 .. end``, so needs no mask."""

    mask: torch.Tensor | None = None

    def __init__(self, cache: StaticCache, start: int, end: int):
        if start != 0 and end - start != 1:
            raise ValueError(f"span {start}..{end} of the cache: it starts at 0 or has one position")
        self.cache, self.start, self.end = cache, start, end

    def update(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a layer's keys and values ``[B, kv_heads, T, head_dim]``; give all that the pass may attend to."""
        all_keys, all_values = self.cache.keys[layer], self.cache.values[layer]
        all_keys[:, :, self.start : self.end].copy_(keys)
        all_values[:, :, self.start : self.end].copy_(values)
        return all_keys[:, :, : self.end], all_values[:, :, : self.end]


class StepView:
    """One new position a line, each at its own: ``positions`` int64 ``[B]`` on the device.

    Reads the whole cache; the mask hides what lies behind each line's position.
    """

    def __init__(self, cache: StaticCache, positions: torch.Tensor):
        self.cache = cache
        kv_heads, length, head_dim = cache.keys.shape[2:]
        self.index = positions[:, None, None, None].expand(-1, kv_heads, 1, head_dim)
        hidden = torch.arange(length, device=positions.device) > positions[:, None]
        # Additive and in the model's dtype: SDPA would make that of a bool mask anew in every layer.
        self.mask = torch.zeros_like(hidden, dtype=cache.keys.dtype).masked_fill_(hidden, -torch.inf)
        self.mask = self.mask[:, None, None]

    def update(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a layer's keys and values ``[B, kv_heads, 1, head_dim]``; give the layer's whole cache."""
        all_keys, all_values = self.cache.keys[layer], self.cache.values[layer]
        return all_keys.scatter_(2, self.index, keys), all_values.scatter_(2, self.index, values)

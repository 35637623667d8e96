"""A KV cache of fixed size, and the three ways in which a pass writes to it and reads from it.

Shapes and addresses never change, so a captured graph can use it. Every line starts at position 0 of its own row;
positions after its last one are masked, and are overwritten as the line grows.
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
    def allocate(cls, shape: tuple[int, int, int, int, int], like: torch.Tensor) -> StaticCache:
        """Return an empty cache of ``shape`` ``[layers, B, kv_heads, T, head_dim]``; dtype and device of ``like``."""
        # Zeros: masked positions still enter the GEMMs, where a NaN would spread.
        return cls(like.new_zeros(shape), like.new_zeros(shape))

    @property
    def lines(self) -> int:
        return self.keys.shape[1]

    @property
    def length(self) -> int:
        return self.keys.shape[3]

    def window(self, length: int) -> StaticCache:
        return StaticCache(self.keys[:, :, :, :length], self.values[:, :, :, :length])

    def row(self, row: int) -> StaticCache:
        return StaticCache(self.keys[:, row : row + 1], self.values[:, row : row + 1])

    def clone(self) -> StaticCache:
        return StaticCache(self.keys.clone(), self.values.clone())

    def clear(self, rows: torch.Tensor) -> None:
        """Zero some rows (int64 ``[N]``): a previous line may have left NaN there, which no mask can hide."""
        self.keys.index_fill_(1, rows, 0)
        self.values.index_fill_(1, rows, 0)

    def copy_from(self, other: StaticCache) -> None:
        self.keys[:, :, :, : other.length].copy_(other.keys)
        self.values[:, :, :, : other.length].copy_(other.values)

    def copy_rows(self, rows: torch.Tensor, other: StaticCache) -> None:
        """Copy a shorter cache of other lines to these rows (int64 ``[N]``, without repeats)."""
        self.keys[:, :, :, : other.length].index_copy_(1, rows, other.keys)
        self.values[:, :, :, : other.length].index_copy_(1, rows, other.values)


class FillView:
    """Prefill of some rows (int64 ``[N]`` on the device, without repeats) from position 0 on.

    Nothing is read from the cache: the pass is causal over the prompts themselves, so a shorter prompt does not see
    the padding on its right.
    """

    mask: torch.Tensor | None = None

    def __init__(self, cache: StaticCache, rows: torch.Tensor):
        self.cache, self.rows = cache, rows

    def update(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a layer's keys and values ``[N, kv_heads, T, head_dim]`` and return them."""
        length = keys.shape[2]
        self.cache.keys[layer, :, :, :length].index_copy_(0, self.rows, keys)
        self.cache.values[layer, :, :, :length].index_copy_(0, self.rows, values)
        return keys, values


class SpanView:
    """The same positions for all lines: ``0 .. end`` (causal), or a single one. Reads ``0 .. end``: needs no mask."""

    mask: torch.Tensor | None = None

    def __init__(self, cache: StaticCache, start: int, end: int):
        self.cache, self.start, self.end = cache, start, end

    def update(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a layer's keys and values ``[B, kv_heads, T, head_dim]``; return those of ``0 .. end``."""
        all_keys, all_values = self.cache.keys[layer], self.cache.values[layer]
        all_keys[:, :, self.start : self.end].copy_(keys)
        all_values[:, :, self.start : self.end].copy_(values)
        return all_keys[:, :, : self.end], all_values[:, :, : self.end]


class StepView:
    """One new position per line (int64 ``[B]`` on the device); the mask hides later positions of the cache."""

    def __init__(self, cache: StaticCache, positions: torch.Tensor):
        self.cache = cache
        kv_heads, length, head_dim = cache.keys.shape[2:]
        self.index = positions[:, None, None, None].expand(-1, kv_heads, 1, head_dim)
        hidden = torch.arange(length, device=positions.device) > positions[:, None]
        # Additive, in the model's dtype: SDPA would convert a bool mask to that in every layer.
        self.mask = torch.zeros_like(hidden, dtype=cache.keys.dtype).masked_fill_(hidden, -torch.inf)
        self.mask = self.mask[:, None, None]

    def update(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a layer's keys and values ``[B, kv_heads, 1, head_dim]``; return the layer's complete cache."""
        all_keys, all_values = self.cache.keys[layer], self.cache.values[layer]
        return all_keys.scatter_(2, self.index, keys), all_values.scatter_(2, self.index, values)

"""Detect that a model was moved or a weight replaced, before views of it are used again."""

from collections.abc import Iterator
from typing import Any

import torch


class TensorAddresses:
    """Addresses of the modules' parameters and buffers. Keeps no module and no replaced tensor alive."""

    def __init__(self, *modules: torch.nn.Module):
        found = [tensor for module in modules for tensor in _tensors_in(module)]
        self._owners, self._names = [owner for owner, _ in found], [name for _, name in found]
        self._seen = self._look()

    def unchanged(self) -> bool:
        return self._look() == self._seen

    def _look(self) -> list[int]:
        try:  # in maps: hundreds of tensors, before every line
            return [*map(torch.Tensor.data_ptr, map(dict.__getitem__, self._owners, self._names))]
        except (KeyError, TypeError):  # deleted, or set to None
            return []


def _tensors_in(module: torch.nn.Module) -> Iterator[tuple[dict[str, torch.Tensor], str]]:
    """Yield the dict and the name of every parameter and buffer: a move to another device replaces buffers."""
    for one in module.modules():
        owners: tuple[Any, Any] = one._parameters, one._buffers
        for owner in owners:
            yield from ((owner, name) for name, value in owner.items() if value is not None)

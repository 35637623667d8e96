"""Weights of several modules as one, at no cost of memory: stacked heads and tables, fused projections.

``join`` re-homes weights as views of one tensor, row behind row; ``joined`` gives that tensor back from the views
themselves, so nothing has to be remembered, and a model that was moved to another device (which gives every
parameter a storage of its own again) is noticed and joined anew. ``stack`` does so for weights of one shape, as
``[N, V, H]``. ``view_weight`` and ``view_heads`` do the same for linear layers that may be INT8.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .int8 import Int8Linear, Int8Weight
from .linear import Weight


def _weights(modules: Iterable[torch.nn.Module], name: str = "weight") -> list[torch.Tensor]:
    return [getattr(module, name) for module in modules]


def joined(modules: Iterable[torch.nn.Module], name: str = "weight") -> torch.Tensor | None:
    """The tensor whose rows are the modules' weights, one behind the other, or None when there is none.

    ``name`` is of the parameter or buffer.
    """
    weights = _weights(modules, name)
    first = weights[0]
    storage, offset = first.untyped_storage().data_ptr(), first.storage_offset()
    for weight in weights:
        same_home = weight.untyped_storage().data_ptr() == storage
        if not (same_home and weight.storage_offset() == offset and weight.is_contiguous()):
            return None
        offset += weight.numel()
    shape = (sum(map(len, weights)), *first.shape[1:])
    return first.detach().as_strided(shape, first.stride(), first.storage_offset())


def join(modules: Iterable[torch.nn.Module], name: str = "weight") -> torch.Tensor:
    """Make the modules' weights views of one tensor ``[all rows, ...]``, and give it; free when they already are.

    The parameters stay the same objects; only where their numbers live changes. While it runs, the old weights go
    one by one, so the memory in use never exceeds the weights by more than their own size.
    """
    modules = list(modules)
    home = joined(modules, name)
    if home is not None:
        return home
    weights = _weights(modules, name)
    first, rows = weights[0], [len(weight) for weight in weights]
    # Parameters made outside inference mode cannot take inference tensors as their data.
    with torch.inference_mode(False), torch.no_grad():
        home = torch.empty((sum(rows), *first.shape[1:]), dtype=first.dtype, device=first.device)
        for place, weight in zip(home.split(rows), weights, strict=True):
            place.copy_(weight)
            weight.data = place
    return home


def stacked(modules: torch.nn.ModuleList) -> torch.Tensor | None:
    """The ``[N, V, H]`` tensor that the modules' weights are views of, or None when they are not."""
    home = joined(modules)
    return None if home is None else home.unflatten(0, (len(modules), -1))


def stack(modules: torch.nn.ModuleList) -> torch.Tensor:
    """``join`` for weights of one shape ``[V, H]``: give them as one ``[N, V, H]`` tensor."""
    return join(modules).unflatten(0, (len(modules), -1))


def unstack(modules: torch.nn.ModuleList) -> None:
    """Give each weight a storage of its own again."""
    names = ("weight", "scale") if isinstance(modules[0], Int8Linear) else ("weight",)
    with torch.inference_mode(False), torch.no_grad():
        for name in names:
            for weight in _weights(modules, name):
                weight.data = weight.data.clone()


def view_weight(linears: Iterable[torch.nn.Module]) -> Weight:
    """``join`` for linear layers: a tensor, or an ``Int8Weight`` where they are INT8."""
    linears = list(linears)
    weight = join(linears)
    is_int8 = isinstance(linears[0], Int8Linear)
    return Int8Weight(weight, join(linears, "scale")) if is_int8 else weight


def view_heads(heads: torch.nn.ModuleList) -> Weight:
    """``stack`` for linear layers: ``[N, V, H]``, a tensor or an ``Int8Weight``."""
    return view_weight(heads).unflatten(0, (len(heads), -1))

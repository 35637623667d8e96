"""The predictor's 15 heads, and its 15 embedding tables, each as one tensor at no cost of memory.

``stack`` re-homes the weights of a ModuleList as views of one ``[15, V, H]`` tensor; ``stacked`` gives that tensor
back from the views themselves, so nothing has to be remembered, and a model that was moved to another device
(which gives every parameter a storage of its own again) is noticed and stacked anew.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch


def _weights(modules: Iterable[torch.nn.Module]) -> list[torch.nn.Parameter]:
    return [module.get_parameter("weight") for module in modules]


def stacked(modules: torch.nn.ModuleList) -> torch.Tensor | None:
    """The ``[N, V, H]`` tensor that the modules' weights are views of, or None when they are not."""
    weights = _weights(modules)
    first = weights[0]
    storage = first.untyped_storage().data_ptr()
    for index, weight in enumerate(weights):
        same_home = weight.untyped_storage().data_ptr() == storage
        in_place = weight.storage_offset() == first.storage_offset() + index * first.numel()
        if not (same_home and in_place and weight.is_contiguous()):
            return None
    shape = (len(weights), *first.shape)
    strides = (first.numel(), *first.stride())
    return first.detach().as_strided(shape, strides, first.storage_offset())


def stack(modules: torch.nn.ModuleList) -> torch.Tensor:
    """Make the modules' weights views of one ``[N, V, H]`` tensor, and give it; free when they already are.

    The parameters stay the same objects; only where their numbers live changes. While it runs, the old weights go
    one by one, so the memory in use never exceeds the weights by more than their own size.
    """
    home = stacked(modules)
    if home is not None:
        return home
    weights = _weights(modules)
    # Parameters made outside inference mode cannot take inference tensors as their data.
    with torch.inference_mode(False), torch.no_grad():
        home = torch.empty(
            (len(weights), *weights[0].shape), dtype=weights[0].dtype, device=weights[0].device
        )
        for place, weight in zip(home, weights, strict=True):
            place.copy_(weight)
            weight.data = place
    return home


def unstack(modules: torch.nn.ModuleList) -> None:
    """Give each weight a storage of its own again."""
    with torch.inference_mode(False), torch.no_grad():
        for weight in _weights(modules):
            weight.data = weight.data.clone()

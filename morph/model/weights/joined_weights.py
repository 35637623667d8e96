"""View the weights of several modules as one tensor, without extra memory: stacked heads, fused projections.

``join`` turns weights into views of one tensor, and ``joined`` finds that tensor from the views, so there is no state.
A move to another device gives every parameter its own storage; ``join`` then joins them again.
"""

from collections.abc import Iterable

import torch

from .int8 import Int8Linear, Int8Weight
from .linear import Weight


def _weights(modules: Iterable[torch.nn.Module], name: str = "weight") -> list[torch.Tensor]:
    return [getattr(module, name) for module in modules]


def joined(modules: Iterable[torch.nn.Module], name: str = "weight") -> torch.Tensor | None:
    """Return the tensor whose rows are the modules' concatenated weights, or None if they are not joined."""
    weights = _weights(modules, name)
    first = weights[0]
    storage, offset = first.untyped_storage().data_ptr(), first.storage_offset()
    for weight in weights:
        same_storage = weight.untyped_storage().data_ptr() == storage
        if not (same_storage and weight.storage_offset() == offset and weight.is_contiguous()):
            return None
        offset += weight.numel()
    shape = (sum(map(len, weights)), *first.shape[1:])
    return first.detach().as_strided(shape, first.stride(), first.storage_offset())


def join(modules: Iterable[torch.nn.Module], name: str = "weight") -> torch.Tensor:
    """Make the modules' weights views of one tensor ``[all rows, ...]`` and return it; a no-op if they already are.

    The parameters stay the same objects; only their storage changes. The old storages are freed one by one, so the
    peak is at most twice the size of these weights.
    """
    modules = list(modules)
    tensor = joined(modules, name)
    if tensor is not None:
        return tensor
    weights = _weights(modules, name)
    first, rows = weights[0], [len(weight) for weight in weights]
    # Parameters made outside inference mode cannot take inference tensors as their data.
    with torch.inference_mode(False), torch.no_grad():
        tensor = torch.empty((sum(rows), *first.shape[1:]), dtype=first.dtype, device=first.device)
        for view, weight in zip(tensor.split(rows), weights, strict=True):
            view.copy_(weight)
            weight.data = view
    return tensor


def stack(modules: torch.nn.ModuleList) -> torch.Tensor:
    """``join`` weights of one shape ``[V, H]``; return them as one ``[N, V, H]`` tensor."""
    return join(modules).unflatten(0, (len(modules), -1))


def view_weight(linears: Iterable[torch.nn.Module]) -> Weight:
    linears = list(linears)
    weight = join(linears)
    is_int8 = isinstance(linears[0], Int8Linear)
    return Int8Weight(weight, join(linears, "scale")) if is_int8 else weight


def view_heads(heads: torch.nn.ModuleList) -> Weight:
    return view_weight(heads).unflatten(0, (len(heads), -1))

"""Weights of linear layers, in full precision or INT8, and views of several as one tensor.

INT8 is weight-only: each row of a weight is integers -127 .. 127 and one scale, half the bytes of bf16. It is
symmetric, rounded to nearest, without calibration: ``scale = max |row| / 127``, rounded to the model's dtype before the
row is divided by it, so that rounding the scale adds no error. Activations are not quantized, nor are embeddings,
norms, group 0's head, codec and speaker encoder. INT8 is an approximation at any SEQ_GROUPS: "exact" is then relative
to the INT8 model.

Stacked heads and fused projections are views without extra memory. ``join`` turns weights into views of one tensor, and
``joined`` finds that tensor from the views, so there is no state. A move to another device gives every parameter its
own storage; ``join`` then joins them again. ``TensorAddresses`` detects that a model was moved or a weight replaced,
before views of it are used again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch
from torch.nn import functional

LARGEST = 127
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
# Weights converted per block: few enough for a core's cache, or the GPU's.
CPU_BLOCK, GPU_BLOCK = 1 << 19, 1 << 23
PACKED_ROWS = 4  # up to this many states torch's INT8 GEMM is faster on the CPU
PACKED_STEP = 32  # it reads complete vectors, past the end of a row that is not a multiple of them


@dataclass(frozen=True)
class Int8Weight:
    """The weight ``values * scale``: int8 ``[..., N, K]``, and ``[..., N]`` in the states' dtype."""

    values: torch.Tensor
    scale: torch.Tensor

    @property
    def shape(self) -> torch.Size:
        return self.values.shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of states and results."""
        return self.scale.dtype

    @property
    def device(self) -> torch.device:
        return self.values.device

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int | slice) -> Int8Weight:
        return Int8Weight(self.values[index], self.scale[index])

    def flatten(self, start: int, end: int) -> Int8Weight:
        """``Tensor.flatten``; not of the last dimension, the columns."""
        return Int8Weight(self.values.flatten(start, end), self.scale.flatten(start, end))

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Int8Weight:
        """``Tensor.unflatten`` of any dimension but the last, the columns."""
        return Int8Weight(self.values.unflatten(dim, sizes), self.scale.unflatten(dim, sizes))

    def full(self) -> torch.Tensor:
        return self.values * self.scale[..., None]

    @classmethod
    def __torch_function__(cls, function: Any, _types: Any, given: Any = (), _named: Any = None) -> Any:
        if function is not functional.linear:
            return NotImplemented
        states, weight = given
        return weight.linear(states)

    def linear(self, states: torch.Tensor) -> torch.Tensor:
        """Return ``states W^T`` for a weight ``[N, K]``, in ``dtype``."""
        if self._is_packed(states):
            rows = states.reshape(-1, self.shape[1]).clone(memory_format=torch.contiguous_format)
            product = torch._weight_int8pack_mm(rows, self.values, self.scale)
            return product.view(*states.shape[:-1], -1)
        block = CPU_BLOCK if states.device.type == "cpu" else GPU_BLOCK
        rows_of_block = max(1, block // self.shape[1])
        starts = range(0, len(self), rows_of_block)
        parts = [self[start : start + rows_of_block]._linear_widened(states) for start in starts]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _linear_widened(self, states: torch.Tensor) -> torch.Tensor:
        if states.dtype == torch.float16:  # sums of unscaled integers would overflow
            return functional.linear(states, self.full())
        return functional.linear(states, self.values.to(states.dtype)) * self.scale

    def _is_packed(self, states: torch.Tensor) -> bool:
        """Whether to use ``torch._weight_int8pack_mm``: bf16 on the CPU, small batch."""
        # In float32 and for large batches it is slower than ``_linear_widened``; on Windows it is not vectorized. It
        # checks neither width nor alignment: hence PACKED_STEP, and the caller's contiguous copy of the states.
        return (
            states.device.type == "cpu"
            and states.dtype == torch.bfloat16
            and states.numel() <= PACKED_ROWS * self.shape[1]
            and self.shape[1] % PACKED_STEP == 0
            and sys.platform != "win32"
            and hasattr(torch, "_weight_int8pack_mm")
        )


def quantize(weight: torch.Tensor) -> Int8Weight:
    """Return the nearest INT8 weight to ``[..., N, K]``; a row that is not finite gets a scale that is not finite."""
    wide = weight.detach().float()
    tiny = torch.finfo(weight.dtype).tiny  # for rows of zeros, and scales that underflow the dtype
    scale = (wide.abs().amax(dim=-1) / LARGEST).clamp(min=tiny).to(weight.dtype)
    steps = (wide / scale.float()[..., None]).round_().clamp_(-LARGEST, LARGEST)
    return Int8Weight(steps.to(torch.int8), scale)


class Int8Linear(torch.nn.Module):
    """Replaces ``nn.Linear``; the buffers ``weight`` int8 ``[N, K]`` and ``scale`` ``[N]`` move with it."""

    weight: torch.Tensor
    scale: torch.Tensor

    def __init__(self, linear: torch.nn.Linear):
        super().__init__()
        quantized = quantize(linear.weight)
        self.register_buffer("weight", quantized.values)
        self.register_buffer("scale", quantized.scale)
        self.bias = linear.bias

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        product = Int8Weight(self.weight, self.scale).linear(states)
        return product if self.bias is None else product + self.bias


@torch.no_grad()
def quantize_talker(talker: Any) -> None:
    """Quantize the talker and its code predictor in place, freeing each full layer before the next."""
    predictor = talker.code_predictor
    for layer in [*talker.model.layers, *predictor.model.layers]:
        for part, names in ((layer.self_attn, ATTENTION), (layer.mlp, MLP)):
            for name in names:
                setattr(part, name, Int8Linear(getattr(part, name)))
    for group, head in enumerate(predictor.lm_head):
        predictor.lm_head[group] = Int8Linear(head)


Weight: TypeAlias = "torch.Tensor | Int8Weight"


# torch calls ``Int8Weight.__torch_function__``; a function of ours would be most calls of a frame on the CPU.
linear = cast("Callable[[torch.Tensor, Weight], torch.Tensor]", functional.linear)


def split_scales(weight: Weight) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return a weight's values and, for INT8, its scales (else None), as the kernels take them."""
    return (weight.values, weight.scale) if isinstance(weight, Int8Weight) else (weight, None)


def joined(modules: Iterable[torch.nn.Module], name: str = "weight") -> torch.Tensor | None:
    """Return the tensor whose rows are the modules' concatenated weights, or None if they are not joined."""
    weights: list[torch.Tensor] = [getattr(module, name) for module in modules]
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
    weights = [getattr(module, name) for module in modules]
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

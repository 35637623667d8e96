"""Weight-only INT8: each row of a weight is integers -127 .. 127 and one scale, half the bytes of bf16.

Symmetric, rounded to nearest, no calibration: ``scale = max |row| / 127``, rounded to the model's dtype before the
row is divided by it, so that rounding the scale adds no error. Activations are not quantized, nor are embeddings,
norms, group 0's head, codec and speaker encoder. INT8 is an approximation at any SEQ_GROUPS: "exact" is then relative
to the INT8 model.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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

"""Weight-only INT8: a row of a weight as whole numbers -127 .. 127 and one scale; half the bytes of bf16.

Symmetric, rounded to nearest, no calibration: ``scale = max |row| / 127`` in the model's dtype, and the row is rounded
in steps of that scale as the dtype holds it, so that rounding the scale costs nothing. States stay as they are.
Quantised are the seven projections of every layer of talker and predictor, and the predictor's heads; embeddings,
norms, group 0's head, codec and speaker encoder are not.

Approximate, at any SEQ_GROUPS: what is said of exactness elsewhere then holds for the model with these weights.
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
# Weights that are widened at a time: what stays in a core's cache, and in a GPU's.
CPU_BLOCK, GPU_BLOCK = 1 << 19, 1 << 23
PACKED_ROWS = 4  # states up to which torch's int8 product wins on the CPU
PACKED_STEP = 32  # it reads whole vectors, and beyond the end of a row that is no multiple of them


@dataclass(frozen=True)
class Int8Weight:
    """``values`` int8 ``[..., N, K]`` times ``scale`` ``[..., N]``; the scale has the dtype of the states."""

    values: torch.Tensor
    scale: torch.Tensor

    @property
    def shape(self) -> torch.Size:
        """The weight's."""
        return self.values.shape

    @property
    def dtype(self) -> torch.dtype:
        """What it multiplies in."""
        return self.scale.dtype

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.values.device

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int | slice) -> Int8Weight:
        return Int8Weight(self.values[index], self.scale[index])

    def flatten(self, start: int, end: int) -> Int8Weight:
        """As a tensor's; the columns must stay out of it."""
        return Int8Weight(self.values.flatten(start, end), self.scale.flatten(start, end))

    def unflatten(self, dim: int, sizes: Sequence[int]) -> Int8Weight:
        """As a tensor's, of any dimension but the columns."""
        return Int8Weight(self.values.unflatten(dim, sizes), self.scale.unflatten(dim, sizes))

    def full(self) -> torch.Tensor:
        """The weight that it stands for, in ``dtype``."""
        return self.values * self.scale[..., None]

    def linear(self, states: torch.Tensor) -> torch.Tensor:
        """``states W^T`` of a weight ``[N, K]``, in ``dtype``."""
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
        if states.dtype == torch.float16:  # sums of whole numbers would leave its range
            return functional.linear(states, self.full())
        return functional.linear(states, self.values.to(states.dtype)) * self.scale

    def _is_packed(self, states: torch.Tensor) -> bool:
        """Whether to take ``torch._weight_int8pack_mm``: bf16 on the CPU, few states.

        In float32 and for many states it is slower than what stands in its place, and on Windows it is not vectorised.
        It does not check the width and the addresses that it needs: hence the step, and the states' copy.
        """
        return (
            states.device.type == "cpu"
            and states.dtype == torch.bfloat16
            and states.numel() <= PACKED_ROWS * self.shape[1]
            and self.shape[1] % PACKED_STEP == 0
            and sys.platform != "win32"
            and hasattr(torch, "_weight_int8pack_mm")
        )


def quantize(weight: torch.Tensor) -> Int8Weight:
    """The nearest INT8 weight to ``[..., N, K]``; numbers that are not finite make their row's scale so too."""
    wide = weight.detach().float()
    tiny = torch.finfo(weight.dtype).tiny  # for rows of zeros, and scales below what the dtype has
    scale = (wide.abs().amax(dim=-1) / LARGEST).clamp(min=tiny).to(weight.dtype)
    steps = (wide / scale.float()[..., None]).round_().clamp_(-LARGEST, LARGEST)
    return Int8Weight(steps.to(torch.int8), scale)


class Int8Linear(torch.nn.Module):
    """Takes the place of ``nn.Linear``; its buffers ``weight`` int8 ``[N, K]`` and ``scale`` ``[N]`` move with it."""

    weight: torch.Tensor
    scale: torch.Tensor

    def __init__(self, linear: torch.nn.Linear):
        super().__init__()
        quantized = quantize(linear.weight)
        self.register_buffer("weight", quantized.values)
        self.register_buffer("scale", quantized.scale)
        self.bias = linear.bias

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """``states W^T``, and the bias where there is one."""
        product = Int8Weight(self.weight, self.scale).linear(states)
        return product if self.bias is None else product + self.bias


@torch.no_grad()
def quantize_talker(talker: Any) -> None:
    """Let upstream's talker and its code predictor have INT8 weights; one layer after another, each freed at once."""
    predictor = talker.code_predictor
    for layer in [*talker.model.layers, *predictor.model.layers]:
        for part, names in ((layer.self_attn, ATTENTION), (layer.mlp, MLP)):
            for name in names:
                setattr(part, name, Int8Linear(getattr(part, name)))
    for group, head in enumerate(predictor.lm_head):
        predictor.lm_head[group] = Int8Linear(head)

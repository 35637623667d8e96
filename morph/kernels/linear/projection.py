"""A linear layer as the kernels compute it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...model.weights.linear import Weight
from ..states import Residual


@dataclass(frozen=True)
class Projection:
    """A linear layer, and what is fused into its kernel before and after the product."""

    weight: Weight  # [N, K], or when ``gated`` (SwiGLU) [2 N, K], gates first
    norm: torch.Tensor | None = None  # RMSNorm of the input, [K]
    eps: float = 0.0
    bias: torch.Tensor | None = None  # [N]
    gated: bool = False
    partials: torch.Tensor | None = None  # of the last projection, [split_k, rows, ..], for GEMV only
    residual: Residual | None = None  # stream that the product is added to, in place
    starts: Residual | None = None  # stream that the product starts
    next_norm: torch.Tensor | None = None  # GEMMs leave the stream times it, cuBLAS after that norm
    input_copy: torch.Tensor | None = None  # [rows, K], gets the input (GEMV only)
    normed_copy: torch.Tensor | None = None  # [rows, K], gets it after the norm

    def __post_init__(self) -> None:
        if self.residual is not None and self.starts is not None:
            raise ValueError("a projection adds to a residual stream or starts one: give residual or starts")
        if self.normed_copy is not None and self.norm is None:
            raise ValueError("normed_copy is the input after the norm: give norm, too")

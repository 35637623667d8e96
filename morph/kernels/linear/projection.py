"""A linear layer as the kernels compute it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...model.weights.linear import Weight
from ..states import Residual


@dataclass(frozen=True)
class Projection:
    """A linear layer, and what is fused into its kernel before and after the product.

    Attributes:
        weight: ``[N, K]``, or when ``gated`` ``[2 N, K]``, gates first.
        norm, eps: RMSNorm of the input: its weight ``[K]``. None: no norm.
        bias: ``[N]``.
        gated: SwiGLU: the output is ``silu(gate) * up``.
        partials: split-K partials ``[split_k, rows, ..]`` of the last projection that are still to be added up, for
            GEMV only: they are added to ``residual``, or to the input where there is none.
        residual: the residual stream that the product is added to, in place.
        starts: the residual stream that the product starts, where it is not added to one.
        next_norm: the weight of the norm that follows: GEMMs leave ``residual`` or ``starts`` multiplied by it too, and
            cuBLAS's products after that norm, with ``eps``.
        input_copy, normed_copy: ``[rows, K]``, where to leave the input as it is, and after the norm. The former is
            for GEMV only.
    """

    weight: Weight
    norm: torch.Tensor | None = None
    eps: float = 0.0
    bias: torch.Tensor | None = None
    gated: bool = False
    partials: torch.Tensor | None = None
    residual: Residual | None = None
    starts: Residual | None = None
    next_norm: torch.Tensor | None = None
    input_copy: torch.Tensor | None = None
    normed_copy: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.residual is not None and self.starts is not None:
            raise ValueError("a projection adds to a residual stream or starts one: give residual or starts")
        if self.normed_copy is not None and self.norm is None:
            raise ValueError("normed_copy is the input after the norm: give norm, too")

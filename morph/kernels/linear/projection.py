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
        weight: ``[N, K]``, or when ``gated`` (SwiGLU) ``[2 N, K]``, gates first; bias: ``[N]``.
        norm, eps: the input's RMSNorm: its weight ``[K]``, or None.
        partials: split-K partials ``[split_k, rows, ..]`` of the last projection, for GEMV only: they are added to
            ``residual``, or without one to the input.
        residual, starts: the residual stream that the product is added to in place, or starts.
        next_norm: the next norm's weight. GEMMs leave ``residual`` or ``starts`` multiplied by it too, cuBLAS's
            products after that norm, with ``eps``.
        input_copy, normed_copy: ``[rows, K]``, get the input as it is (GEMV only), and after the norm.
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

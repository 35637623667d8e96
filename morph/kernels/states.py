"""The inputs, KV cache span and residual stream of a pass over a layer stack."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..model.layers import AlignmentProbe, Angles
from ..model.static_cache import StaticCache
from ..model.weights import Weight
from .plan import SUM_WIDTH, Plan


@dataclass(frozen=True)
class Inputs:
    """The rows that a pass starts from, in the model's dtype."""

    states: torch.Tensor  # [R, H], or with ``tokens`` an embedding table
    tokens: torch.Tensor | None = None  # int64 [B], perhaps strided
    hidden: torch.Tensor | None = None  # [B, H], a row before each token's (the predictor's first pass)

    @property
    def rows(self) -> int:
        rows = len(self.states) if self.tokens is None else len(self.tokens)
        return rows if self.hidden is None else 2 * rows

    def operand(self, plan: Plan) -> torch.Tensor:
        """Return, for GEMM, all rows ``[R, H]`` in the model's dtype."""
        if self.tokens is None:
            return self.states
        out = plan.empty("operand", (self.rows, self.states.shape[1]), self.states)
        if self.hidden is None:
            return torch.index_select(self.states, 0, self.tokens, out=out)
        pairs = out.unflatten(0, (-1, 2))
        pairs[:, 0].copy_(self.hidden)
        torch.index_select(self.states, 0, self.tokens, out=pairs[:, 1])
        return out


@dataclass(frozen=True)
class CacheSpan:
    """The positions of the KV cache that a pass writes and reads."""

    cache: StaticCache
    angles: Angles
    length: int  # new positions per line
    window: int  # attention reads positions below it
    start: int = 0  # first new position if ``positions`` is None
    positions: torch.Tensor | None = None  # int64 [B], new ones; older ones precede the frame
    probe: AlignmentProbe | None = None

    @property
    def is_prompt(self) -> bool:
        """Whether it is one line's prompt: more positions than the predictor's first pass has, and none before."""
        return self.positions is None and self.start == 0 and self.length > 2


@dataclass(frozen=True)
class Residual:
    """The residual stream of a pass."""

    values: torch.Tensor  # float32 [R, H]
    scaled: torch.Tensor | None  # [R, H], times the next norm's weight, or normed; not for GEMV
    squares: torch.Tensor | None = None  # float32 [H / SUM_WIDTH, R], for RMSNorm in a GEMM

    @classmethod
    def empty(cls, plan: Plan, rows: int, like: torch.Tensor) -> Residual:
        values = plan.empty("residual", (rows, len(like)), like, torch.float32)
        if rows <= plan.gemv_max_rows:
            return cls(values, None)
        scaled = plan.empty("scaled", (rows, len(like)), like)
        if plan.uses_library(rows):
            return cls(values, scaled)
        return cls(values, scaled, plan.empty("squares", (-(-len(like) // SUM_WIDTH), rows), values))

    def operand(self, plan: Plan) -> torch.Tensor:
        """Return, for GEMM, ``scaled``; raise ValueError if this stream was made for GEMV."""
        if self.scaled is None:
            raise ValueError("this residual stream has no scaled copy, which a GEMM reads: use Residual.empty")
        return self.scaled

    def last(self, length: int, plan: Plan) -> Residual:
        def last_of(name: str, rows: torch.Tensor) -> torch.Tensor:
            if rows.is_contiguous():  # of one line
                return rows
            return plan.empty(name, rows.shape, rows).copy_(rows)

        last = slice(length - 1, None, length)
        return Residual(
            last_of("last residual", self.values[last]),
            None if self.scaled is None else last_of("last scaled", self.scaled[last]),
            None if self.squares is None else last_of("last squares", self.squares[:, last]),
        )


@dataclass(frozen=True)
class Projection:
    """A linear layer, and the operations fused into its kernel before and after the GEMM."""

    weight: Weight  # [N, K], or when ``gated`` (SwiGLU) [2 N, K], gates first
    norm: torch.Tensor | None = None  # RMSNorm of the input, [K]
    eps: float = 0.0
    bias: torch.Tensor | None = None  # [N]
    gated: bool = False
    partials: torch.Tensor | None = None  # of the last projection, [split_k, rows, ..], for GEMV only
    residual: Residual | None = None  # stream that the result is added to, in place
    starts: Residual | None = None  # stream that the result starts
    next_norm: torch.Tensor | None = None  # GEMMs leave the stream times it, cuBLAS after that norm
    input_copy: torch.Tensor | None = None  # [rows, K], gets the input (GEMV only)
    normed_copy: torch.Tensor | None = None  # [rows, K], gets it after the norm

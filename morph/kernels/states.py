"""What a pass over a layer stack works on: its inputs, its span of the KV cache, and the residual stream."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..model.alignment import Watch
from ..model.layers import Angles
from ..model.static_cache import StaticCache
from .constants import SUM_WIDTH
from .plan import Plan


@dataclass(frozen=True)
class Inputs:
    """What a pass starts from, in the model's dtype: rows ``[R, H]``, or rows of an embedding table by token.

    Attributes:
        states: ``[R, H]``, or with ``tokens`` the table.
        tokens: int64 ``[B]``, possibly a strided view.
        hidden: ``[B, H]``, with ``tokens`` only: a row that precedes each token's. The predictor's first pass has two
            positions per line: the talker's hidden state, then the embedding of the frame's group 0.
    """

    states: torch.Tensor
    tokens: torch.Tensor | None = None
    hidden: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        """Number of rows."""
        rows = len(self.states) if self.tokens is None else len(self.tokens)
        return rows if self.hidden is None else 2 * rows

    def source(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """For GEMV: the states or the table, and the tokens, which the kernel looks up itself."""
        return self.states, self.tokens

    def operand(self, plan: Plan) -> torch.Tensor:
        """For GEMM: all rows, ``[R, H]`` in the model's dtype."""
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
    """The positions of the KV cache that a pass writes and reads.

    Attributes:
        length: new positions per line.
        window: attention reads positions below it.
        start: the first new position of every line, where ``positions`` is None.
        positions: int64 ``[B]``, each line's new position. The older ones were then written before the frame began.
        watch: what the alignment head is asked for, or None.
    """

    cache: StaticCache
    angles: Angles
    length: int
    window: int
    start: int = 0
    positions: torch.Tensor | None = None
    watch: Watch | None = None

    @property
    def is_prompt(self) -> bool:
        """Whether it is one line's prompt: more positions than the predictor's first pass has, and none before them."""
        return self.positions is None and self.start == 0 and self.length > 2


@dataclass(frozen=True)
class Residual:
    """The residual stream of a pass.

    Attributes:
        values: float32 ``[R, H]``.
        scaled: ``[R, H]`` in the model's dtype, what the next GEMM multiplies: ``values`` times the next norm's weight,
            or without ``squares`` all of ``values`` after that norm. None where GEMV runs.
        squares: float32 ``[H / SUM_WIDTH, R]``, sums of ``values`` squared: what the next GEMM's RMSNorm needs. None
            where GEMV runs, and where the products are cuBLAS's.
    """

    values: torch.Tensor
    scaled: torch.Tensor | None
    squares: torch.Tensor | None = None

    @classmethod
    def empty(cls, plan: Plan, rows: int, like: torch.Tensor) -> Residual:
        """Return buffers for ``rows`` rows; ``like`` is a norm's weight ``[H]``."""
        values = plan.empty("residual", (rows, len(like)), like, torch.float32)
        if rows <= plan.gemv_max_rows:
            return cls(values, None)
        scaled = plan.empty("scaled", (rows, len(like)), like)
        if plan.uses_library(rows):
            return cls(values, scaled)
        return cls(values, scaled, plan.empty("squares", (-(-len(like) // SUM_WIDTH), rows), values))

    def source(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """For GEMV: the float32 rows."""
        return self.values, None

    def operand(self, plan: Plan) -> torch.Tensor:
        """For GEMM: ``scaled``.

        Raises:
            ValueError: for a residual stream that was made for GEMV.
        """
        if self.scaled is None:
            raise ValueError(
                "this residual stream has no scaled copy, which a GEMM reads: use Residual.empty"
            )
        return self.scaled

    def last(self, length: int, plan: Plan) -> Residual:
        """Return the last of each line's ``length`` positions."""
        if length == 1:
            return self

        def last_rows(name: str, rows: torch.Tensor) -> torch.Tensor:
            rows = rows[length - 1 :: length]
            if rows.is_contiguous():  # of one line
                return rows
            return plan.empty(name, rows.shape, rows).copy_(rows)

        values = last_rows("last residual", self.values)
        if self.scaled is None:
            return Residual(values, None)
        scaled = last_rows("last scaled", self.scaled)
        if self.squares is None:
            return Residual(values, scaled)
        squares = self.squares[:, length - 1 :: length]
        squares = plan.empty("last squares", squares.shape, squares).copy_(squares)
        return Residual(values, scaled, squares)

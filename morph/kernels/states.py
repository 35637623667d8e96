"""What a pass works on: where its states come from, where it stands in the cache, and the residual stream."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..model.layers import Angles
from ..model.static_cache import StaticCache
from .linear.gemm import SHARE
from .plan import Plan


@dataclass(frozen=True)
class Inputs:
    """What a pass starts from, in the model's dtype: states ``[R, H]``, or rows of a table named by tokens.

    ``tokens`` is int64 ``[B]``, possibly a strided view. ``before`` ``[B, H]`` are states that stand one before each
    token's: those of a frame's first pass.
    """

    states: torch.Tensor
    tokens: torch.Tensor | None = None
    before: torch.Tensor | None = None

    @property
    def rows(self) -> int:
        """How many states there are."""
        rows = len(self.states) if self.tokens is None else len(self.tokens)
        return rows if self.before is None else 2 * rows

    def source(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """For few states: rows, and which of them."""
        return self.states, self.tokens

    def operand(self, plan: Plan) -> torch.Tensor:
        """For the tensor cores: ``[R, H]`` in the model's dtype."""
        if self.tokens is None:
            return self.states
        out = plan.empty("operand", (self.rows, self.states.shape[1]), self.states)
        if self.before is None:
            return torch.index_select(self.states, 0, self.tokens, out=out)
        pairs = out.unflatten(0, (-1, 2))
        pairs[:, 0].copy_(self.before)
        torch.index_select(self.states, 0, self.tokens, out=pairs[:, 1])
        return out


@dataclass(frozen=True)
class Place:
    """Where a pass stands: lines' new positions are ``start ..`` for all, or ``positions`` (int64 ``[B]``) each.

    ``length`` is how many new positions a line has; ``window`` bounds the cache that is looked at. With
    ``positions``, what the cache holds was there before the frame began.
    """

    cache: StaticCache
    angles: Angles
    length: int
    window: int
    start: int = 0
    positions: torch.Tensor | None = None


@dataclass(frozen=True)
class States:
    """The residual stream: float32 ``[R, H]``, and what the tensor cores read of it, None for few states.

    ``narrow`` ``[R, H]`` is the states times the next norm's weight, in the model's dtype, and ``squares`` float32
    ``[H / SHARE, R]`` the sums of their squares: see ``project_many.store_operand``.
    """

    wide: torch.Tensor
    narrow: torch.Tensor | None
    squares: torch.Tensor | None = None

    @classmethod
    def empty(cls, plan: Plan, rows: int, like: torch.Tensor) -> States:
        """Room for states; ``like`` is a norm's weight ``[H]``."""
        wide = plan.empty("wide", (rows, len(like)), like, torch.float32)
        if rows <= plan.few:
            return cls(wide, None)
        squares = plan.empty("squares", (-(-len(like) // int(SHARE)), rows), wide)
        return cls(wide, plan.empty("narrow", (rows, len(like)), like), squares)

    def source(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As of ``Inputs``."""
        return self.wide, None

    def operand(self, plan: Plan) -> torch.Tensor:
        """As of ``Inputs``, times the next norm's weight."""
        if self.narrow is None:
            raise ValueError("states for the tensor cores are kept in the model's dtype too: this one is not")
        return self.narrow

    def last(self, length: int, plan: Plan) -> States:
        """Each line's last of ``length`` positions."""
        if length == 1:
            return self

        def chosen(name: str, states: torch.Tensor) -> torch.Tensor:
            rows = states[length - 1 :: length]
            if rows.is_contiguous():  # of one line
                return rows
            return plan.empty(name, rows.shape, rows).copy_(rows)

        wide = chosen("last wide", self.wide)
        if self.narrow is None or self.squares is None:
            return States(wide, None)
        squares = self.squares[:, length - 1 :: length]
        squares = plan.empty("last squares", squares.shape, squares).copy_(squares)
        return States(wide, chosen("last narrow", self.narrow), squares)

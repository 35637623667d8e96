"""The weights of a frame, as views of the model's parameters."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from ..model.layers import LayerStack
from ..model.model import Model
from ..model.tail import tail_logits
from ..model.weights import TensorAddresses, Weight, view_heads
from ..words.head import AlignmentHead


@dataclass(frozen=True)
class Weights:
    """All weights of a frame, as views of the model's parameters; see ``LayerStack`` for when to release them."""

    talker: LayerStack
    predictor: LayerStack
    first_table: torch.Tensor  # [V, H], of group 0, as ``first_head``
    first_head: torch.Tensor
    tables: torch.Tensor  # [15, V, H], of the other groups
    heads: Weight  # [15, V, H_predictor]
    projection: tuple[torch.Tensor, torch.Tensor] | None  # weight and bias to the predictor's width
    tails: Mapping[int, Mapping[str, torch.Tensor]] = field(default_factory=dict)
    alignment: AlignmentHead | None = None

    @classmethod
    def of(cls, model: Model) -> Weights:
        """View a model's weights on their current device, joining them if necessary; check its config."""
        talker, predictor = model.talker, model.talker.code_predictor
        projection: Any = predictor.small_to_mtp_projection
        is_equal = isinstance(projection, torch.nn.Identity)  # the predictor's width, to the talker's
        return cls(
            talker=LayerStack.of(talker.model),
            predictor=LayerStack.of(predictor.model),
            first_table=talker.model.codec_embedding.weight.detach(),
            first_head=talker.codec_head.weight.detach(),
            tables=model.code_tables(),
            heads=view_heads(predictor.lm_head),
            projection=None if is_equal else (projection.weight.detach(), projection.bias.detach()),
            tails={seq_groups: one.parts for seq_groups, one in model.tails().items()},
            alignment=model.alignment,
        )

    @cached_property
    def stock(self) -> Weights:
        """The same weights without trained tails."""
        return replace(self, tails={})

    def crossbar_logits(self, seq_groups: int, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return tail_logits(self.tails.get(seq_groups, {}), self.heads[seq_groups:], states, tokens)


class WeightViews:
    """The cached weight views of one model: creating them takes a millisecond or two.

    They are renewed when a parameter or buffer has moved. Checking all addresses takes 0.3 ms with a cold CPU cache:
    after ``assume``, ``confirm`` checks them while the device is busy.
    """

    def __init__(self) -> None:
        self.count = 0  # of renewals: a graph captured with other weights must not be replayed
        self.free()

    def free(self) -> None:
        self.weights: Weights | None = None
        self._of: tuple[Any, ...] = ()
        self._where: TensorAddresses | None = None
        self._assumed = False

    def of(self, model: Model) -> Weights:
        """Return ``Weights.of`` the model, the same object as long as it is valid; the errors are the same."""
        key = _key(model)
        if self.weights is not None and key == self._of and self._where and self._where.unchanged():
            self._assumed = False
            return self.weights
        self.free()  # before the weights are joined, which takes memory
        weights = self.weights = Weights.of(model)
        self.count, self._of = self.count + 1, key
        self._where = TensorAddresses(model.talker, model.module.tails)
        return weights

    def assume(self, model: Model) -> Weights:
        """Return ``of`` the model, perhaps unchecked: call ``confirm`` later, and discard results if it fails."""
        # The memory of outdated views is still valid.
        weights = self.weights
        if weights is None or _key(model) != self._of or weights.talker.norm.device != model.device:
            return self.of(model)
        self._assumed = True
        return weights

    def confirm(self) -> bool:
        """Return whether the assumed weights are the model's; call it once."""
        assumed, self._assumed = self._assumed, False
        return not assumed or (self._where is not None and self._where.unchanged())


def _key(model: Model) -> tuple[Any, ...]:
    return (weakref.ref(model.module), model.alignment, *map(id, model.module.tails.values()))

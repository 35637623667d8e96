"""The weights of a frame, as views of the model's parameters."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..model.crossbar import tail_logits
from ..model.layers import LayerStack
from ..model.model import Model
from ..model.weights.addresses import TensorAddresses
from ..model.weights.joined_weights import view_heads
from ..model.weights.linear import Weight, tensors_of
from ..words.head import AlignmentHead


@dataclass(frozen=True)
class Weights:
    """All weights of a frame, as views of the model's parameters; see ``LayerStack`` for when to release them.

    ``first_table`` and ``first_head`` ``[V, H]`` belong to group 0, ``tables`` ``[15, V, H]`` and ``heads``
    ``[15, V, H_predictor]`` to the other groups. ``projection`` is weight and bias from the talker's width to the
    predictor's, or None. ``tails`` are the parts of trained tails, by SEQ_GROUPS. ``alignment`` is the head
    that follows the text, or None.
    """

    talker: LayerStack
    predictor: LayerStack
    first_table: torch.Tensor
    first_head: torch.Tensor
    tables: torch.Tensor
    heads: Weight
    projection: tuple[torch.Tensor, torch.Tensor] | None
    tails: Mapping[int, Mapping[str, torch.Tensor]] = field(default_factory=dict)
    alignment: AlignmentHead | None = None

    @classmethod
    def of(cls, model: Model, tail: str = "auto") -> Weights:
        """View a model's weights on their current device; joins those that are not joined yet.

        ``tail``: as in ``GenerateOptions``.

        Raises:
            ValueError: for a config that the graph engine does not implement.
        """
        talker, predictor = model.talker, model.talker.code_predictor
        return cls(
            talker=LayerStack.of(talker.model),
            predictor=LayerStack.of(predictor.model),
            first_table=talker.get_input_embeddings().weight.detach(),
            first_head=talker.codec_head.weight.detach(),
            tables=model.code_tables(),
            heads=view_heads(predictor.lm_head),
            projection=_view_projection(predictor.small_to_mtp_projection),
            tails={seq_groups: one.parts for seq_groups, one in model.tails(tail).items()},
            alignment=model.alignment,
        )

    def crossbar_logits(self, seq_groups: int, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return ``tail_logits`` of these heads, with the trained tail of ``seq_groups`` if there is one."""
        return tail_logits(self.tails.get(seq_groups, {}), self.heads[seq_groups:], states, tokens)

    def addresses(self) -> tuple[int, ...]:
        """Return the alignment head and all weights' addresses: a graph captured with others must not be replayed."""
        tensors = [self.first_table, self.first_head, self.tables, self.heads, *(self.projection or ())]
        for decoder in (self.talker, self.predictor):
            tensors += [decoder.qk_norms, decoder.norm]
            tensors += [value for layer in decoder.layers for value in vars(layer).values()]
        tensors += [part for parts in self.tails.values() for part in parts.values()]
        head = () if self.alignment is None else (self.alignment.layer, self.alignment.head)
        return (*head, *(tensor.data_ptr() for weight in tensors for tensor in tensors_of(weight)))


class KeptWeights:
    """The weights of one model, kept until ``free``: viewing them takes a millisecond or two.

    They are viewed again where a parameter or buffer has another address than before, because the model was moved or
    a weight was replaced. Until then the views keep their memory. A look at all addresses takes 0.3 ms where they are
    not in the CPU's cache: ``assume`` leaves it for a moment when the device is busy, ``confirm``.
    """

    def __init__(self) -> None:
        self.free()

    def free(self) -> None:
        """Release the views."""
        self.weights: Weights | None = None
        self.addresses: tuple[int, ...] = ()
        self._of: tuple[Any, ...] = ()
        self._where: TensorAddresses | None = None
        self._assumed = False

    def of(self, model: Model, tail: str = "auto") -> Weights:
        """Return ``Weights.of`` these arguments, the same object for as long as it is valid; see there for errors."""
        key = _key(model, tail)
        if self.weights is not None and key == self._of and self._where and self._where.unchanged():
            self._assumed = False
            return self.weights
        self.free()  # before the weights are joined, which takes memory
        weights = self.weights = Weights.of(model, tail)
        self.addresses, self._of = weights.addresses(), key
        self._where = TensorAddresses(model.talker, model.module.tails)
        return weights

    def assume(self, model: Model, tail: str = "auto") -> Weights:
        """Return ``of`` these arguments, except that the addresses may not have been looked at: call ``confirm`` then.

        What is computed with weights that prove to be others must be thrown away. Their memory is still valid.
        """
        weights = self.weights
        if weights is None or _key(model, tail) != self._of or weights.talker.norm.device != model.device:
            return self.of(model, tail)
        self._assumed = True
        return weights

    def confirm(self) -> bool:
        """Return whether the weights that ``assume`` returned are the model's; to be asked once."""
        assumed, self._assumed = self._assumed, False
        return not assumed or (self._where is not None and self._where.unchanged())


def _key(model: Model, tail: str) -> tuple[Any, ...]:
    return (weakref.ref(model.module), tail, model.alignment, *map(id, model.module.tails.values()))


def _view_projection(module: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    if isinstance(module, torch.nn.Identity):
        return None
    return module.weight.detach(), module.bias.detach()

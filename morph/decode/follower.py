"""Ask the alignment head of the eager engine's talker, beside its own layers."""

from __future__ import annotations

from typing import Any

import torch

from ..model.alignment import token_on
from ..model.model import Model
from ..model.network.modules import rotate
from ..voice.prompt import Prompt
from ..words.head import AlignmentHead


class Follower:
    """Asks the alignment head of the talker about one line.

    ``states`` ``[1, T, H]`` are the last inputs of the head's layer; ``spans`` as of ``alignment.AlignmentProbe``.
    """

    def __init__(self, model: Model, head: AlignmentHead, prompt: Prompt):
        self.head, self.spans = head, torch.tensor([prompt.text_span], device=model.device)
        self.states: torch.Tensor | None = None
        self._layer: Any = model.talker.model.layers[head.layer]

    def ask(self, keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Return what the head says of the line's newest position, int64 ``[1, 3]`` (see ``words.trace``).

        ``keys`` of its layer are ``[1, kv_heads, T, D]``; ``cos`` and ``sin`` of that position ``[1, D]``.
        """
        assert self.states is not None
        attention = self._layer.self_attn
        states = attention.q_proj(self._layer.input_layernorm(self.states[:, -1])).unflatten(
            -1, (-1, cos.shape[1])
        )
        query = rotate(attention.q_norm(states[:, self.head.head]), cos, sin)
        own = keys[:, self.head.head // (states.shape[1] // keys.shape[1])]
        return token_on(query, own, self.spans, own.new_ones(own.shape[:2], dtype=torch.bool))

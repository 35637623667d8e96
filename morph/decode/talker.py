"""Run the talker over a line: one prefill, then one step per frame.

Bit-equal to upstream's ``talker.generate``. Nothing is stored on the model.
"""

from __future__ import annotations

from typing import Any

import torch

from ..model.alignment import token_on
from ..model.model import Model
from ..model.network.modules import rotate
from ..model.rope import RopeTable
from ..voice.prompt import Prompt, embed_frames
from .predictor import KeyValueCache

TABLE_STEP = 256  # positions by which the RoPE table grows


class EagerTalker:
    """The talker's state for one line."""

    def __init__(self, model: Model, prompt: Prompt):
        self.model, self._prompt, self._text = model, prompt, prompt.text_rows
        self.step_number = 0
        self._tables = model.code_tables()
        self._rope: RopeTable | None = None
        self._cache = KeyValueCache()
        # For the alignment head: the span of the line's text, and the last inputs of the head's layer.
        self._spans = torch.tensor([prompt.text_span], device=model.device)
        self._probed: torch.Tensor | None = None

    def prefill(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the prompt; return the last hidden state ``[1, 1, H]`` and group 0's logits ``[1, V]``."""
        return self._run(self._prompt.embeds[None], 0)

    def step(self, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take a finished frame ``[1, 16]``; return the next hidden state ``[1, 1, H]`` and logits ``[1, V]``."""
        in_text = self.step_number < len(self._text)
        text = self._text[self.step_number, None] if in_text else self._prompt.pad
        states = (embed_frames(self.model, codes, self._tables) + text)[:, None]
        self.step_number += 1
        return self._run(states, self._prompt.length + self.step_number - 1)

    def _run(self, states: torch.Tensor, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        rotation, head = self._angles(start, start + states.shape[1]), self.model.alignment
        for index, layer in enumerate(self.model.talker.model.layers):
            if head is not None and index == head.layer:
                self._probed = states[:, -1]
            states = layer(states, rotation, self._cache)
        states = self.model.talker.model.norm(states)
        # Over all positions, as upstream does: a GEMM of another shape may round differently.
        return states[:, -1:], self.model.talker.codec_head(states)[:, -1]

    def add_text(self, rows: torch.Tensor, tokens: int) -> None:
        """Append late text ``[N, H]``; ``tokens`` counts all of the line's text so far."""
        self._text = torch.cat((self._text, rows))
        self._spans[0, 1] = tokens

    def alignment(self) -> torch.Tensor | None:
        """Return the line's text token now, int64 ``[1, 3]`` (see ``words.alignment``); None without a head."""
        if (head := self.model.alignment) is None or self._probed is None:
            return None
        layer: Any = self.model.talker.model.layers[head.layer]
        keys = self._cache.layers[head.layer][0]
        position = self._prompt.length + self.step_number
        cos, sin = self._angles(position - 1, position)
        states = layer.self_attn.q_proj(layer.input_layernorm(self._probed)).unflatten(-1, (-1, cos.shape[1]))
        query = rotate(layer.self_attn.q_norm(states[:, head.head]), cos, sin)
        own = keys[:, head.head // (states.shape[1] // keys.shape[1])]
        return token_on(query, own, self._spans, own.new_ones(own.shape[:2], dtype=torch.bool))

    def _angles(self, start: int, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        model = self.model
        if self._rope is None or not self._rope.fits(end, model.device, model.dtype):
            self._rope = RopeTable.build(model.talker.config, end + TABLE_STEP, model.device, model.dtype)
        return self._rope.cos[start:end], self._rope.sin[start:end]

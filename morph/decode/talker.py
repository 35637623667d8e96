"""Run upstream's talker over a line: one prefill, then one step per frame over its own layers.

Bit-equal to upstream's ``talker.generate``, with the RoPE table computed once and a cache that makes fewer calls.
Nothing is stored on the upstream model (its ``rope_deltas`` are not used).
"""

from __future__ import annotations

from contextlib import nullcontext

import torch

from ..model.model import Model
from ..model.rope import RopeTable
from ..voice.prompt import Prompt, embed_frames
from .follower import Follower
from .kv_cache import KeyValueCache

TABLE_STEP = 256  # positions by which the RoPE table grows


class Talker:
    """The talker's state for one line."""

    def __init__(self, model: Model, prompt: Prompt):
        self.model, self._prompt, self._text = model, prompt, prompt.text_rows
        self.step_number = 0
        self._tables = model.code_tables()
        self._rope: RopeTable | None = None
        self._cache = KeyValueCache(len(model.talker.model.layers))
        self._follower = None if model.alignment is None else Follower(model, model.alignment, prompt)

    def prefill(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the prompt; return the last hidden state ``[1, 1, H]`` and group 0's logits ``[1, V]``."""
        with nullcontext() if self._follower is None else self._follower.watching():
            return self._run_prompt()

    def _run_prompt(self) -> tuple[torch.Tensor, torch.Tensor]:
        from transformers import DynamicCache

        cache, positions = DynamicCache(), torch.arange(self._prompt.length, device=self.model.device)
        out = self.model.talker.model(
            inputs_embeds=self._prompt.embeds[None],
            attention_mask=torch.ones_like(positions)[None],
            position_ids=positions.expand(3, 1, -1),
            past_key_values=cache,
            use_cache=True,
            cache_position=positions,
        )
        for index, layer in enumerate(cache.layers):
            self._cache.keys[index], self._cache.values[index] = layer.keys, layer.values
        states = out.last_hidden_state
        # Over all positions, as upstream does: a GEMM of another shape may round differently.
        return states[:, -1:], self.model.talker.codec_head(states)[:, -1]

    def step(self, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take a finished frame ``[1, 16]``; return the next hidden state ``[1, 1, H]`` and logits ``[1, V]``."""
        in_text = self.step_number < len(self._text)
        text = self._text[self.step_number, None] if in_text else self._prompt.pad
        states = (embed_frames(self.model, codes, self._tables) + text)[:, None]
        cos, sin = self._angles(self._prompt.length + self.step_number)
        angles = (
            cos[None].expand(3, -1, -1, -1),
            sin[None].expand(3, -1, -1, -1),
        )  # of mrope, equal for speech
        for index, layer in enumerate(self.model.talker.model.layers):
            if self._follower is not None and index == self._follower.head.layer:
                self._follower.states = states
            states = layer(
                states, attention_mask=None, past_key_values=self._cache, position_embeddings=angles
            )[0]
        self.step_number += 1
        states = self.model.talker.model.norm(states)
        return states, self.model.talker.codec_head(states)[:, -1]

    def add_text(self, rows: torch.Tensor, tokens: int) -> None:
        """Append late text ``[N, H]``; ``tokens`` counts all of the line's text so far."""
        self._text = torch.cat((self._text, rows))
        if self._follower is not None:
            self._follower.spans[0, 1] = tokens

    def alignment(self) -> torch.Tensor | None:
        """Return the line's text token now, int64 ``[1, 3]`` (see ``words.trace``); None without a head."""
        if self._follower is None:
            return None
        keys = self._cache.keys[self._follower.head.layer]
        assert keys is not None
        cos, sin = self._angles(self._prompt.length + self.step_number - 1)
        return self._follower.ask(keys, cos[0], sin[0])

    def _angles(self, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a position's cosines and sines, ``[1, 1, head_dim]``."""
        model = self.model
        if self._rope is None or not self._rope.fits(position + 1, model.device, model.dtype):
            self._rope = RopeTable.build(
                model.talker.config, position + TABLE_STEP, model.device, model.dtype
            )
        return self._rope.cos[None, position, None], self._rope.sin[None, position, None]

"""Run upstream's talker over a batch of prompts: one prefill, then one step per frame over its own layers.

Bit-equal to upstream's ``talker.generate`` (left padding, position offsets), with the RoPE table computed once and a
cache that makes fewer calls. Nothing is stored on the upstream model (its ``rope_deltas`` are not used).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch

from ..model.model import Model
from ..model.rope import RopeTable
from ..voice.prompt import Prompt, embed_frames
from .follower import Follower
from .kv_cache import KeyValueCache

TABLE_STEP = 256  # positions by which the RoPE table grows


class Talker:
    """The talker's state for one batch of lines.

    Args:
        model: the checkpoint.
        prompts: one per line; shorter ones are padded on the left.
    """

    def __init__(self, model: Model, prompts: Sequence[Prompt]):
        self.model = model
        self.lengths = [prompt.length for prompt in prompts]
        self.longest = max(self.lengths)
        self.step_number = 0
        self.pad = prompts[0].pad
        self.trailing = self._pad_trailing(prompts)
        self.embeds = self._pad_left(prompts)
        self.attended = self._attended()
        self._lengths = torch.tensor(self.lengths, device=model.device)
        self._tables = model.code_tables()
        self._rope: RopeTable | None = None
        self._cache = KeyValueCache(len(model.talker.model.layers))
        self._follower = None if model.alignment is None else Follower(model, model.alignment, prompts)

    def _pad_left(self, prompts: Sequence[Prompt]) -> torch.Tensor:
        rows = [
            torch.nn.functional.pad(prompt.embeds, (0, 0, self.longest - prompt.length, 0))
            for prompt in prompts
        ]
        return torch.stack(rows)

    def _pad_trailing(self, prompts: Sequence[Prompt]) -> torch.Tensor:
        most = max(len(prompt.trailing) for prompt in prompts)
        rows = [
            torch.cat((prompt.text_rows, prompt.pad.expand(most - len(prompt.trailing), -1)))
            for prompt in prompts
        ]
        return torch.stack(rows)

    def _attended(self) -> torch.Tensor:
        """Return which positions of the padded prompts are real: bool ``[B, T]``."""
        positions = torch.arange(self.longest, device=self.model.device)
        padding = torch.tensor([[self.longest - length] for length in self.lengths], device=self.model.device)
        return positions >= padding

    def prefill(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the prompts; return the last hidden state ``[B, 1, H]`` and group 0's logits ``[B, V]``."""
        with nullcontext() if self._follower is None else self._follower.watching():
            return self._run_prompts()

    def _run_prompts(self) -> tuple[torch.Tensor, torch.Tensor]:
        from transformers import DynamicCache

        positions = (self.attended.long().cumsum(-1) - 1).masked_fill(~self.attended, 1)
        cache = DynamicCache()
        out = self.model.talker.model(
            inputs_embeds=self.embeds,
            attention_mask=self.attended.long(),
            position_ids=positions.expand(3, -1, -1),
            past_key_values=cache,
            use_cache=True,
            cache_position=torch.arange(self.longest, device=self.model.device),
        )
        for index, layer in enumerate(cache.layers):
            self._cache.keys[index], self._cache.values[index] = layer.keys, layer.values
        states = out.last_hidden_state
        # Over all positions, as upstream does: a GEMM of another shape may round differently.
        return states[:, -1:], self.model.talker.codec_head(states)[:, -1]

    def step(self, codes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Take a finished frame ``[B, 16]``; return the next hidden state ``[B, 1, H]`` and logits ``[B, V]``."""
        states = embed_frames(self.model, codes, self._tables)[:, None] + self._text()
        mask = self._mask()
        angles = self._angles()
        for index, layer in enumerate(self.model.talker.model.layers):
            if self._follower is not None and index == self._follower.head.layer:
                self._follower.states = states
            states = layer(
                states, attention_mask=mask, past_key_values=self._cache, position_embeddings=angles
            )[0]
        self.step_number += 1
        states = self.model.talker.model.norm(states)
        return states, self.model.talker.codec_head(states)[:, -1]

    def add_text(self, rows: torch.Tensor, tokens: int) -> None:
        """Append text that came late, ``[N, H]``, for a batch of one line; ``tokens``: of all of its text so far."""
        self.trailing = torch.cat((self.trailing, rows[None]), dim=1)
        if self._follower is not None:
            self._follower.spans[0, 1] = tokens

    def alignment(self) -> torch.Tensor | None:
        """Return which text token each line is on now, int64 ``[B, 3]`` (see ``words.trace``); None without a head."""
        if self._follower is None:
            return None
        keys = self._cache.keys[self._follower.head.layer]
        assert keys is not None
        rope, newest = self._table(), self._lengths - 1 + self.step_number
        return self._follower.ask(keys, self.longest - self._lengths, rope.cos[newest], rope.sin[newest])

    def _text(self) -> torch.Tensor:
        """Return the text embedding that is added to this frame's input: ``[B, 1, H]`` or ``[1, 1, H]``."""
        if self.step_number < self.trailing.shape[1]:
            return self.trailing[:, self.step_number, None]
        return self.pad[None]

    def _angles(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this step's cosines and sines, ``[3, B, 1, head_dim]``: the three mrope rows are equal for speech."""
        rope = self._table()
        rows = self._lengths + self.step_number
        cos, sin = rope.cos[rows, None], rope.sin[rows, None]
        return cos.expand(3, -1, -1, -1), sin.expand(3, -1, -1, -1)

    def _table(self) -> RopeTable:
        model = self.model
        end = self.longest + self.step_number + 1
        if self._rope is None or not self._rope.fits(end, model.device, model.dtype):
            self._rope = RopeTable.build(model.talker.config, end + TABLE_STEP, model.device, model.dtype)
        return self._rope

    def _mask(self) -> torch.Tensor | None:
        """Return the mask of the left padding, in the form that the attention expects; None without padding."""
        if min(self.lengths) == self.longest:
            return None
        new = self.attended.new_ones(len(self.lengths), self.step_number + 1)
        attended = torch.cat((self.attended, new), dim=1)
        if self.model.attention == "flash_attention_2":
            return attended.long()
        mask = attended[:, None, None]
        if self.model.attention == "eager":
            hidden = torch.finfo(self.model.dtype).min
            return torch.zeros_like(mask, dtype=self.model.dtype).masked_fill(~mask, hidden)
        return mask

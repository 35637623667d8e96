"""The hybrid crossbar decoder: a frame's groups 1-15 from the talker's hidden state and group 0.

``seq_groups`` of the 15 groups run one after another, over upstream's own layers with the morph cache (RoPE and
positions computed once, no mask built); the rest come at once from the last hidden state, through one einsum over
a slice of the stacked heads. 15 equals upstream's ``code_predictor.generate`` bit for bit, draws included; below
15 the tail is an approximation: its hidden state has not seen the last sequential token, its heads were trained on
later positions, and its groups are drawn independently.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from .cache import KeyValueCache
from .options import PREDICTED_GROUPS, Draw, check_seq_groups
from .rope import RopeTable
from .sampling import Randomness, draw_tokens
from .weights import stack, stacked, unstack

POSITIONS = PREDICTED_GROUPS + 2  # the pair of the prefill and 15 tokens, as in the paper's table


def crossbar(heads: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Logits of G groups at once: heads ``[G, V, H]``, hidden ``[B, H]`` -> ``[B, G, V]``."""
    return torch.einsum("gvh,bh->bgv", heads, hidden)


class Predictor:
    """Decodes frames with one upstream ``code_predictor``; holds its morph cache and its key/value cache."""

    def __init__(self, code_predictor: Any):
        self.module = code_predictor
        self._rope: RopeTable | None = None
        self._cache: KeyValueCache | None = None

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        draw: Draw,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Predict groups 1-15 of one frame.

        Args:
            hidden: ``[B, 1, H_talker]``, the talker's last hidden state.
            embedding: ``[B, 1, H_talker]``, the embedding of group 0's token.
            seq_groups: 1..15, how many groups run sequentially.
            draw: sampling of the sub-talker.
            randomness: one stream, or one per line.

        Returns:
            Codes ``[B, 15]``, int64.
        """
        heads = stack(self.module.lm_head)
        tables = self.module.model.codec_embedding
        rope, cache = self._prepare(hidden)
        states = self._run(torch.cat((hidden, embedding), dim=1), 0, rope, cache)
        codes = [draw_tokens(self.module.lm_head[0](states)[:, -1], draw, randomness)]
        for group in range(1, seq_groups):
            states = self._run(tables[group - 1](codes[-1][:, None]), group + 1, rope, cache)
            codes.append(draw_tokens(self.module.lm_head[group](states)[:, -1], draw, randomness))
        sequential = torch.stack(codes, dim=1)
        if seq_groups == len(heads):
            return sequential
        tail = draw_tokens(crossbar(heads[seq_groups:], states[:, -1]), draw, randomness)
        return torch.cat((sequential, tail), dim=1)

    def _prepare(self, hidden: torch.Tensor) -> tuple[RopeTable, KeyValueCache]:
        """Give the morph cache and the key/value cache, made anew where device, dtype or batch changed."""
        batch, device, dtype = hidden.shape[0], hidden.device, hidden.dtype
        config = self.module.config
        if self._rope is None or not self._rope.fits(POSITIONS, device, dtype):
            self._rope = RopeTable.build(config, POSITIONS, device, dtype)
            self._cache = None
        if self._cache is None or self._cache.keys.shape[1] != batch:
            self._cache = KeyValueCache(config, batch, POSITIONS, device, dtype)
        return self._rope, self._cache

    def _run(self, inputs: torch.Tensor, start: int, rope: RopeTable, cache: KeyValueCache) -> torch.Tensor:
        """Run the layers over ``inputs`` ``[B, T, H_talker]`` at positions ``start ..``; give ``[B, T, H]``."""
        states = self.module.small_to_mtp_projection(inputs)
        end = start + states.shape[1]
        angles = (rope.cos[None, start:end], rope.sin[None, start:end])
        mask = self._causal_mask(states)
        cache.length = start
        for layer in self.module.model.layers:
            states = layer(
                states, attention_mask=mask, past_key_values=cache, position_embeddings=angles, use_cache=True
            )[0]
        return self.module.model.norm(states)

    def _causal_mask(self, states: torch.Tensor) -> torch.Tensor | None:
        """SDPA and FlashAttention are causal by themselves; eager attention needs the mask for the prefill pair."""
        length = states.shape[1]
        if length == 1 or self.module.config._attn_implementation != "eager":
            return None
        blocked = torch.full(
            (length, length), torch.finfo(states.dtype).min, device=states.device, dtype=states.dtype
        )
        return blocked.triu(1)[None, None]


@contextmanager
def attach(model: Any, seq_groups: int) -> Iterator[Predictor]:
    """Let upstream's own ``generate`` predict codes through the hybrid decoder, for the length of the ``with``.

    Args:
        model: upstream's ``Qwen3TTSForConditionalGeneration``.
        seq_groups: 1..15.

    After the ``with``, however it ends, the model is as it was: its method, and where its weights live.

    Raises:
        RuntimeError: when the model has a predictor attached already.
    """
    code_predictor = model.talker.code_predictor
    check_seq_groups(seq_groups)
    if "generate" in vars(code_predictor):
        raise RuntimeError("a predictor is attached to this model already: leave that `with` first")
    was_stacked = stacked(code_predictor.lm_head) is not None
    predictor = Predictor(code_predictor)

    def generate(
        inputs_embeds: torch.Tensor,
        do_sample: bool | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        temperature: float | None = None,
        **_: Any,
    ) -> SimpleNamespace:
        # None takes transformers' own defaults, as code_predictor.generate would.
        draw = Draw(
            do_sample=bool(do_sample),
            temperature=1.0 if temperature is None else temperature,
            top_k=50 if top_k is None else top_k,
            top_p=1.0 if top_p is None else top_p,
        )
        hidden, embedding = inputs_embeds[:, :1], inputs_embeds[:, 1:]
        return SimpleNamespace(sequences=predictor.decode_frame(hidden, embedding, seq_groups, draw, None))

    code_predictor.generate = generate
    try:
        yield predictor
    finally:
        del code_predictor.generate
        if not was_stacked:
            unstack(code_predictor.lm_head)

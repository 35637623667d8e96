"""The predictors that the paper's ablation compares, rebuilt from their descriptions.

We know these rows by name and numbers only, not their code; each docstring says what we had to fill in. They exist
for the study: the product has none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from qwen3_tts_morph.morph.decode.kv_cache import KeyValueCache
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.sampling import Randomness, sample_tokens
from qwen3_tts_morph.morph.model.crossbar import crossbar
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS, TokenSampling

REFINEMENTS = 5  # rounds, as in the paper
CANDIDATES = 64  # tokens per group that refinement may choose from
CHUNK = 3  # groups per chunk, of five


class TightLoop(Predictor):
    """A tight loop over upstream's own ``code_predictor.forward`` instead of its ``generate``.

    Nothing is precomputed: every step builds RoPE, positions and masks again and grows transformers' own cache. A
    possible difference from the paper's row: its loop may also have replaced the talker's ``generate``.
    """

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        sampling: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Decode all 15 groups sequentially; ``seq_groups`` is ignored."""
        from transformers import DynamicCache

        cache = DynamicCache()
        out = self.module(
            inputs_embeds=torch.cat((hidden, embedding), dim=1), past_key_values=cache, use_cache=True
        )
        codes = [sample_tokens(out.logits[:, -1], sampling, randomness)]
        for step in range(1, PREDICTED_GROUPS):
            out = self.module(
                input_ids=codes[-1][:, None],
                past_key_values=cache,
                use_cache=True,
                generation_steps=step,
            )
            codes.append(sample_tokens(out.logits[:, -1], sampling, randomness))
        return torch.stack(codes, dim=1)


class Compiled(Predictor):
    """The morph predictor with its layers compiled by ``torch.compile``, all 15 groups sequentially.

    Shapes are dynamic, so that the growing cache compiles once or twice instead of 15 times. Sampling is not compiled.
    We do not know what the paper compiled and in which mode: this is torch's default mode.
    """

    def __init__(self, model: Model):
        super().__init__(model.talker.code_predictor)
        self._compiled = torch.compile(run_layers, dynamic=True)

    def _run(self, inputs: torch.Tensor, start: int, cache: KeyValueCache | None) -> torch.Tensor:
        if cache is None or (self.attention == "eager" and inputs.shape[1] > 1):
            return super()._run(inputs, start, cache)
        end = start + inputs.shape[1]
        angles = (self.rope.cos[None, start:end], self.rope.sin[None, start:end])
        return self._compiled(self.module, inputs, angles, cache)


def run_layers(
    module: Any,
    inputs: torch.Tensor,
    angles: tuple[torch.Tensor, torch.Tensor],
    cache: KeyValueCache,
) -> torch.Tensor:
    """The layers of ``Predictor._run`` as one function that can be compiled."""
    states = module.small_to_mtp_projection(inputs)
    for layer in module.model.layers:
        states = layer(states, attention_mask=None, past_key_values=cache, position_embeddings=angles)[0]
    return module.model.norm(states)


class MaskedPredictor(Predictor):
    """Passes over several positions with a custom mask, which flash-attn does not support."""

    def __init__(self, model: Model):
        super().__init__(model.talker.code_predictor)
        if model.attention == "flash_attention_2":
            raise ValueError(
                "this strategy needs custom masks, which flash-attn does not support: load with attention sdpa"
            )

    def run_masked(
        self, inputs: torch.Tensor, start: int, cache: KeyValueCache | None, visible: torch.Tensor
    ) -> torch.Tensor:
        """Run the layers over ``[B, T, H_talker]`` starting at position ``start``; ``visible`` is bool ``[T, K]``."""
        states = self.module.small_to_mtp_projection(inputs)
        end = start + states.shape[1]
        angles = (self.rope.cos[None, start:end], self.rope.sin[None, start:end])
        blocked = torch.zeros(visible.shape, dtype=states.dtype, device=states.device)
        mask = blocked.masked_fill(~visible, torch.finfo(states.dtype).min)[None, None]
        for layer in self.module.model.layers:
            states = layer(states, attention_mask=mask, past_key_values=cache, position_embeddings=angles)[0]
        return self.module.model.norm(states)

    def embed(self, codes: torch.Tensor, first: int) -> torch.Tensor:
        """Embed codes ``[B, G]`` of groups ``first + 1`` onwards to ``[B, G, H_talker]``."""
        tables = self.module.model.codec_embedding
        return torch.stack([tables[first + i](codes[:, i]) for i in range(codes.shape[1])], dim=1)


class Refined(MaskedPredictor):
    """The constrained crossbar: a draft of all 15 groups at once, then five rounds of refinement.

    All 15 heads draft from the prefill's last state. The 64 most probable tokens of each group are its candidates.
    Each round embeds the complete frame, runs one non-causal pass over it (the paper's passes were not causal) and
    samples all groups again among their candidates. Filled in by us: rounds sample with the sub-talker's own sampling,
    and the draft's candidates stay fixed.
    """

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        sampling: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Decode all 15 groups; ``seq_groups`` is ignored."""
        pair = torch.cat((hidden, embedding), dim=1)
        logits = crossbar(self.heads, self._run(pair, 0, None)[:, -1])
        candidates = logits.topk(min(CANDIDATES, logits.shape[-1]), dim=-1).indices
        allowed = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, candidates, True)
        codes = sample_tokens(logits, sampling, randomness)
        all_see_all = torch.ones(PREDICTED_GROUPS + 1, PREDICTED_GROUPS + 1, dtype=torch.bool)
        for _ in range(REFINEMENTS):
            frame = torch.cat((pair, self.embed(codes[:, :-1], 0)), dim=1)
            states = self.run_masked(frame, 0, None, all_see_all.to(hidden.device))[:, 1:]
            logits = crossbar(self.heads, states)
            codes = sample_tokens(logits.masked_fill(~allowed, -torch.inf), sampling, randomness)
        return codes


class Chunked(MaskedPredictor):
    """Five chunks of three groups: one pass, three groups at once from its last state, and so on.

    Each chunk's three tokens are fed back together, causally, so the next chunk depends on all of them. Filled in by
    us: chunks are causal and use the stock heads. Ours is five passes over upstream's layers, not five fused kernels:
    it reproduces the quality and the number of passes of that row, not its speed.
    """

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        sampling: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Decode all 15 groups; ``seq_groups`` is ignored."""
        cache = KeyValueCache(len(self.module.model.layers))
        states = self._run(torch.cat((hidden, embedding), dim=1), 0, cache)
        chunks = [self._sample(0, states, sampling, randomness)]
        for first in range(CHUNK, PREDICTED_GROUPS, CHUNK):
            before = first - CHUNK
            start, end = before + 2, first + 2
            keys = torch.arange(end, device=hidden.device)
            visible = keys <= keys[start:, None]
            states = self.run_masked(self.embed(chunks[-1], before), start, cache, visible)
            chunks.append(self._sample(first, states, sampling, randomness))
        return torch.cat(chunks, dim=1)

    def _sample(
        self, first: int, states: torch.Tensor, sampling: TokenSampling, randomness: Randomness
    ) -> torch.Tensor:
        """Sample the chunk of groups ``first + 1`` onwards from the last state."""
        return sample_tokens(crossbar(self.heads[first : first + CHUNK], states[:, -1]), sampling, randomness)


def chunk_sources() -> Sequence[int]:
    """Return the index of the exact state that predicts each group: the one before its chunk."""
    return [CHUNK * (group // CHUNK) for group in range(PREDICTED_GROUPS)]

"""The ways of predicting a frame that the paper's ablation compares, rebuilt from their descriptions.

We know the rows by their names and numbers alone, not by their code; each docstring says what was filled in. They
belong to the laboratory: the product has none of them.
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

REFINEMENTS = 5  # rounds, in the paper
FENCE = 64  # tokens of each group that refinement may choose among
CHUNK = 3  # groups of each of the five chunked kernels


class TightLoop(Predictor):
    """A tight loop over upstream's own ``code_predictor.forward`` in place of its ``generate``.

    Nothing is precomputed: every step makes RoPE, positions and masks anew and grows transformers' own cache. What
    differs from the paper's row: its loop may have replaced the talker's ``generate`` too in other ways than ours does.
    """

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        draw: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """All 15 groups in turn; ``seq_groups`` is not looked at."""
        from transformers import DynamicCache

        cache = DynamicCache()
        out = self.module(
            inputs_embeds=torch.cat((hidden, embedding), dim=1), past_key_values=cache, use_cache=True
        )
        codes = [sample_tokens(out.logits[:, -1], draw, randomness)]
        for step in range(1, PREDICTED_GROUPS):
            out = self.module(
                input_ids=codes[-1][:, None],
                past_key_values=cache,
                use_cache=True,
                generation_steps=step,
            )
            codes.append(sample_tokens(out.logits[:, -1], draw, randomness))
        return torch.stack(codes, dim=1)


class Compiled(Predictor):
    """The morph predictor with its layers through ``torch.compile``, all 15 groups in turn.

    Shapes are dynamic, so that the growing cache compiles once or twice and not 15 times. Drawing stays outside.
    What the paper compiled, and in which mode, is not known to us: this is torch's default mode.
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
    """What ``Predictor._run`` does behind its tables, as one function that can be compiled."""
    states = module.small_to_mtp_projection(inputs)
    for layer in module.model.layers:
        states = layer(states, attention_mask=None, past_key_values=cache, position_embeddings=angles)[0]
    return module.model.norm(states)


class MaskedPredictor(Predictor):
    """Passes over several positions with a mask of one's own; flash-attn takes no such mask."""

    def __init__(self, model: Model):
        super().__init__(model.talker.code_predictor)
        if model.attention == "flash_attention_2":
            raise ValueError(
                "this strategy needs masks that flash-attn does not take: load with attention sdpa"
            )

    def run_masked(
        self, inputs: torch.Tensor, start: int, cache: KeyValueCache | None, visible: torch.Tensor
    ) -> torch.Tensor:
        """Run the layers over ``[B, T, H_talker]`` from position ``start`` on; ``visible`` is bool ``[T, K]``."""
        states = self.module.small_to_mtp_projection(inputs)
        end = start + states.shape[1]
        angles = (self.rope.cos[None, start:end], self.rope.sin[None, start:end])
        blocked = torch.zeros(visible.shape, dtype=states.dtype, device=states.device)
        mask = blocked.masked_fill(~visible, torch.finfo(states.dtype).min)[None, None]
        for layer in self.module.model.layers:
            states = layer(states, attention_mask=mask, past_key_values=cache, position_embeddings=angles)[0]
        return self.module.model.norm(states)

    def embed(self, codes: torch.Tensor, first: int) -> torch.Tensor:
        """Codes ``[B, G]`` of groups ``first + 1 ..`` to embeddings ``[B, G, H_talker]``."""
        tables = self.module.model.codec_embedding
        return torch.stack([tables[first + i](codes[:, i]) for i in range(codes.shape[1])], dim=1)


class Refined(MaskedPredictor):
    """The constrained crossbar: a draft of all 15 groups at once, then five rounds that refine it within a fence.

    The draft comes from the prefill's last state through all 15 heads. The 64 likeliest tokens of each group are its
    fence. Each round embeds the whole frame, runs one pass over it in which every position sees every other (the
    paper's passes were not causal) and draws all groups anew from their fenced logits. Filled in by us: that rounds
    draw with the sub-talker's own sampler, and that the fence is the draft's and stays.
    """

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        draw: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """All 15 groups; ``seq_groups`` is not looked at."""
        pair = torch.cat((hidden, embedding), dim=1)
        logits = crossbar(self.heads, self._run(pair, 0, None)[:, -1])
        fence = logits.topk(min(FENCE, logits.shape[-1]), dim=-1).indices
        allowed = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, fence, True)
        codes = sample_tokens(logits, draw, randomness)
        all_see_all = torch.ones(PREDICTED_GROUPS + 1, PREDICTED_GROUPS + 1, dtype=torch.bool)
        for _ in range(REFINEMENTS):
            frame = torch.cat((pair, self.embed(codes[:, :-1], 0)), dim=1)
            states = self.run_masked(frame, 0, None, all_see_all.to(hidden.device))[:, 1:]
            logits = crossbar(self.heads, states)
            codes = sample_tokens(logits.masked_fill(~allowed, -torch.inf), draw, randomness)
        return codes


class Chunked(MaskedPredictor):
    """Five chunked kernels of three groups: a pass, three groups at once from its last state, and so on.

    Each chunk's three tokens are fed back together, causally, so that the next chunk has seen all of them. Filled in
    by us: that chunks are causal and that the three heads are the stock ones. Ours is five passes over upstream's
    layers, not five fused kernels: it shows the quality of that row, and its number of passes, not its speed.
    """

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        draw: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """All 15 groups; ``seq_groups`` is not looked at."""
        cache = KeyValueCache(len(self.module.model.layers))
        states = self._run(torch.cat((hidden, embedding), dim=1), 0, cache)
        chunks = [self._draw(0, states, draw, randomness)]
        for first in range(CHUNK, PREDICTED_GROUPS, CHUNK):
            before = first - CHUNK
            start, end = before + 2, first + 2
            keys = torch.arange(end, device=hidden.device)
            visible = keys <= keys[start:, None]
            states = self.run_masked(self.embed(chunks[-1], before), start, cache, visible)
            chunks.append(self._draw(first, states, draw, randomness))
        return torch.cat(chunks, dim=1)

    def _draw(
        self, first: int, states: torch.Tensor, draw: TokenSampling, randomness: Randomness
    ) -> torch.Tensor:
        """The chunk of groups ``first + 1 ..`` from the last state."""
        return sample_tokens(crossbar(self.heads[first : first + CHUNK], states[:, -1]), draw, randomness)


def chunk_sources() -> Sequence[int]:
    """Which exact state predicts each group in a chunked frame: that before its chunk."""
    return [CHUNK * (group // CHUNK) for group in range(PREDICTED_GROUPS)]

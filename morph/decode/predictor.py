"""The hybrid crossbar decoder: a frame's groups 1-15 from the talker's hidden state and group 0.

``seq_groups`` of the 15 groups run sequentially, with the morph cache (RoPE and positions computed once). The rest are
predicted together from the last hidden state, by one einsum over a slice of the stacked heads. 15 equals upstream's
``code_predictor.generate`` bit for bit, sampling included. Below 15 the tail is an approximation: its hidden state has
not seen the last sequential token, its heads were trained on later positions, and its groups are sampled independently.
A trained tail (``tail.py``) corrects the first two.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..model.network import CodePredictor, rope_table
from ..model.tail import Tail, tail_logits
from ..model.weights import view_heads
from ..options import PREDICTED_GROUPS, TokenSampling
from .sampling import sample_tokens

POSITIONS = PREDICTED_GROUPS + 2  # the pair of the prefill and 15 tokens, as in the paper's table


class KeyValueCache:
    """Keys and values of every layer, ``[B, kv_heads, T, head_dim]``.

    Grows by concatenation, like transformers' ``DynamicCache``, and has the same memory layout, so that the same
    kernels return the same bits.
    """

    def __init__(self) -> None:
        self.layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Append a layer's new keys and values to its old ones; return all."""
        if (old := self.layers.get(layer)) is not None:
            keys, values = torch.cat((old[0], keys), dim=2), torch.cat((old[1], values), dim=2)
        self.layers[layer] = keys, values
        return keys, values


class Predictor:
    """Decodes frames with one code predictor, which must not move to another device meanwhile.

    Create one per decoding: it looks up the stacked heads and the RoPE table once, not every frame, and would keep
    tensors on the old device. ``tails`` are by SEQ_GROUPS; without one, the tail comes from the stock heads.
    """

    def __init__(self, code_predictor: CodePredictor, tails: Mapping[int, Tail] | None = None):
        self.module = code_predictor
        self.tails = tails or {}
        self.heads = view_heads(code_predictor.lm_head)
        self.rope = rope_table(code_predictor.config, POSITIONS, self.heads.device, self.heads.dtype)

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        sampling: TokenSampling,
        stream: torch.Generator | None,
    ) -> torch.Tensor:
        """Predict groups 1-15 of one frame, int64 ``[B, 15]``, of which ``seq_groups`` (1..15) run sequentially.

        ``hidden`` ``[B, 1, H_talker]`` is the talker's last hidden state, ``embedding`` ``[B, 1, H_talker]`` that of
        group 0's token. ``stream`` None: torch's default.
        """
        cache, module = KeyValueCache(), self.module
        states = self._run(torch.cat((hidden, embedding), dim=1), 0, cache)
        codes = [sample_tokens(module.lm_head[0](states)[:, -1], sampling, stream)]
        for group in range(1, seq_groups):
            states = self._run(module.model.codec_embedding[group - 1](codes[-1][:, None]), group + 1, cache)
            codes.append(sample_tokens(module.lm_head[group](states)[:, -1], sampling, stream))
        sequential = torch.stack(codes, dim=1)
        if seq_groups == len(self.heads):
            return sequential
        logits = self.crossbar_logits(seq_groups, states[:, -1], codes[-1])
        return torch.cat((sequential, sample_tokens(logits, sampling, stream)), dim=1)

    def crossbar_logits(self, seq_groups: int, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits ``[B, 15 - S, V]`` of the groups above S = ``seq_groups``, which must be below 15.

        ``states`` ``[B, H]`` is the state that group S, ``tokens`` ``[B]``, was sampled from.
        """
        tail = self.tails.get(seq_groups)
        return tail_logits(tail.parts if tail else {}, self.heads[seq_groups:], states, tokens)

    def teacher_force(self, hidden: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Return the hidden states that predict groups 1-15 of finished frames, in one causal pass over each frame.

        Args:
            hidden: ``[N, 1, H_talker]``, the talker's hidden state before each frame.
            inputs: ``[N, 15, H_talker]``, the embeddings of the frame's groups 0-14.
        Returns:
            ``[N, 15, H]``: state g is the input of ``lm_head[g]``, which predicts group g+1. ``heads[g] @ state[g]`` is
            exact; ``crossbar_logits(S, state[S - 1], group S)`` approximates groups S+1 to 15.
        """
        return self._run(torch.cat((hidden, inputs), dim=1), 0, None)[:, 1:]

    def _run(self, inputs: torch.Tensor, start: int, cache: KeyValueCache | None) -> torch.Tensor:
        """Run the layers over ``inputs`` ``[B, T, H_talker]`` at positions ``start ..``; return ``[B, T, H]``."""
        end = start + inputs.shape[1]
        cos, sin = (table[start:end] for table in self.rope)
        states: torch.Tensor = self.module.model(self.module.small_to_mtp_projection(inputs), (cos, sin), cache)
        return states

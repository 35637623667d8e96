"""Other ways to sample the groups after the sequential ones: what a better crossbar, or more passes, could achieve.

Each is a ``Predictor`` for ``eager.Experiment``; ``TAILS`` names them. The first line of each docstring states the
passes it takes, with S for SEQ_GROUPS. At S = 15 all are exact decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from qwen3_tts_morph.morph.decode.kv_cache import KeyValueCache
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.sampling import Randomness, sample_tokens
from qwen3_tts_morph.morph.model.crossbar import crossbar
from qwen3_tts_morph.morph.options import TokenSampling

from .lossless import LosslessPredictor

ChangeSampling: TypeAlias = Callable[[TokenSampling], TokenSampling]


def unchanged(sampling: TokenSampling) -> TokenSampling:
    return sampling


def greedy(sampling: TokenSampling) -> TokenSampling:
    """Always pick the most probable token."""
    return replace(sampling, do_sample=False)


def cooler(factor: float) -> ChangeSampling:
    """Return a change that multiplies the temperature by ``factor``."""
    return lambda sampling: replace(sampling, temperature=sampling.temperature * factor)


class TailPredictor(Predictor):
    """S passes: the crossbar, with separate sampling for the tail (a lower temperature, or greedy)."""

    def __init__(self, code_predictor: Any, change: ChangeSampling = unchanged):
        super().__init__(code_predictor)
        self.change = change

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        sampling: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """See ``Predictor.decode_frame``."""
        cache = self._new_cache()
        codes, state = self._decode_sequential(hidden, embedding, seq_groups, sampling, randomness, cache)
        if seq_groups == len(self.heads):
            return codes
        return self.decode_tail(codes, state, cache, sampling, randomness)

    def decode_tail(
        self,
        codes: torch.Tensor,
        state: torch.Tensor,
        cache: KeyValueCache,
        sampling: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Complete ``codes`` ``[B, S]`` to ``[B, 15]``; ``state`` ``[B, H]`` is the one the last code came from."""
        logits = crossbar(self.heads[codes.shape[1] :], state)
        return torch.cat((codes, sample_tokens(logits, self.change(sampling), randomness)), dim=1)

    def pass_over(self, codes: torch.Tensor, first: int, cache: KeyValueCache) -> torch.Tensor:
        """Run one causal pass over groups ``first`` onwards; return the states that predict each group's successor."""
        tables = self.module.model.codec_embedding
        inputs = [tables[group](codes[:, group]) for group in range(first, codes.shape[1])]
        return self._run(torch.stack(inputs, dim=1), first + 2, cache)


class TwoHalves(TailPredictor):
    """S + 1 passes: the crossbar for half of the tail, one pass over its samples, the crossbar for the rest."""

    def decode_tail(
        self,
        codes: torch.Tensor,
        state: torch.Tensor,
        cache: KeyValueCache,
        sampling: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        sequential, groups = codes.shape[1], len(self.heads)
        half = sequential + (groups - sequential + 1) // 2
        first = sample_tokens(crossbar(self.heads[sequential:half], state), self.change(sampling), randomness)
        codes = torch.cat((codes, first), dim=1)
        if half == groups:
            return codes
        state = self.pass_over(codes, sequential - 1, cache)[:, -1]
        rest = sample_tokens(crossbar(self.heads[half:], state), self.change(sampling), randomness)
        return torch.cat((codes, rest), dim=1)


class SecondPass(TailPredictor):
    """S + 1 passes: the crossbar drafts the tail, one causal pass runs over the draft, the tail is sampled again.

    ``change`` applies to the draft only; the final codes are sampled as requested.
    """

    def decode_tail(
        self,
        codes: torch.Tensor,
        state: torch.Tensor,
        cache: KeyValueCache,
        sampling: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        sequential = codes.shape[1]
        draft = super().decode_tail(codes, state, cache, sampling, randomness)
        states = self.pass_over(draft[:, :-1], sequential - 1, cache)
        logits = crossbar(self.heads[sequential:], states)
        return torch.cat((codes, sample_tokens(logits, sampling, randomness)), dim=1)


class BoundedPredictor(LosslessPredictor):
    """Lossless decoding that stops early: ``seq_groups`` is the number of passes that a frame may take.

    A frame has at least ``seq_groups`` exact groups, since every pass finishes at least one. The others come from the
    crossbar, from a later state than with ``Predictor``. With 15 passes every group is exact.
    """

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        sampling: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Predict a frame's groups in ``seq_groups`` passes; see ``Predictor.decode_frame``."""
        return self._decode(hidden, embedding, 1, seq_groups, sampling, randomness)


TAILS: Mapping[str, tuple[str, Callable[[Any], Predictor]]] = {
    "tail-cooler": (
        "the crossbar, its tail sampled at half the temperature",
        lambda module: TailPredictor(module, cooler(0.5)),
    ),
    "tail-greedy": ("the crossbar, its tail greedy", lambda module: TailPredictor(module, greedy)),
    "two-halves": ("the crossbar for half of the tail, a pass over it, the crossbar for the rest", TwoHalves),
    "second-pass": ("the crossbar's tail, then one pass over it to sample it again", SecondPass),
    "second-pass-greedy-draft": (
        "the crossbar's tail, greedy, then one pass over it to sample it again",
        lambda module: SecondPass(module, greedy),
    ),
    "bounded": ("lossless, stopped after SEQ_GROUPS passes of the predictor", BoundedPredictor),
    "lossless": (
        "the crossbar drafts after SEQ_GROUPS groups, passes verify: same distribution as SEQ_GROUPS=15",
        LosslessPredictor,
    ),
}
"""Name -> (description, a function that makes the predictor for a ``code_predictor``)."""

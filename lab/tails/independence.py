"""The cost of sampling the tail's groups independently, however well the tail is trained.

The best independent tail samples each group from its exact distribution given the sequential groups, averaged over the
tail groups in between. Its divergence from the joint distribution (the tail's total correlation, in nats per frame) is
a property of the checkpoint: no trained tail can get closer. ``Marginals`` decodes with exactly that tail, by brute
force; it exists for measurements only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from qwen3_tts_morph.morph.decode.kv_cache import KeyValueCache
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.sampling import Randomness, sample_tokens
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS, TokenSampling
from qwen3_tts_morph.morph.study.sweep import embed_inputs, sampled_distribution

from .record import Recording

FRAMES = 8  # frames continued together


class Marginals(Predictor):
    """A predictor with independent tail groups, each with its exact distribution given the sequential groups.

    Every tail group comes from a separate exact continuation: 15 - S times the predictor's work.
    """

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        sampling: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Decode like ``Predictor.decode_frame``, with one random stream for all lines."""
        exact = super().decode_frame(hidden, embedding, PREDICTED_GROUPS, sampling, randomness)
        copies = PREDICTED_GROUPS - seq_groups
        if copies < 2:
            return exact
        tables = self.module.model.codec_embedding
        given = [tables[group](exact[:, group, None]) for group in range(seq_groups)]
        inputs = torch.cat((hidden, embedding, *given), dim=1).repeat_interleave(copies, dim=0)
        codes, _ = self.continue_frames(inputs, seq_groups, sampling, randomness)
        own = torch.arange(copies, device=codes.device)
        tail = codes.view(len(exact), copies, copies)[:, own, own]
        return torch.cat((exact[:, :seq_groups], tail), dim=1)

    def continue_frames(
        self, inputs: torch.Tensor, seq_groups: int, sampling: TokenSampling, randomness: Randomness
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample groups S+1 to 15 sequentially.

        Args:
            inputs: ``[N, S + 2, H_talker]``: the talker's state and the embeddings of groups 0 to S.
            seq_groups: S, below 15.
            sampling: of the sub-talker.
            randomness: one stream.

        Returns:
            Codes ``[N, 15 - S]`` and the distributions they were sampled from, float32 ``[N, 15 - S, V]``.
        """
        tables, heads = self.module.model.codec_embedding, self.module.lm_head
        cache = KeyValueCache(len(self.module.model.layers))
        states = self._run(inputs, 0, cache)
        codes: list[torch.Tensor] = []
        probabilities: list[torch.Tensor] = []
        for group in range(seq_groups, PREDICTED_GROUPS):
            if codes:
                states = self._run(tables[group - 1](codes[-1][:, None]), group + 1, cache)
            logits = heads[group](states)[:, -1]
            codes.append(sample_tokens(logits, sampling, randomness))
            probabilities.append(sampled_distribution(logits, sampling))
        return torch.stack(codes, dim=1), torch.stack(probabilities, dim=1)


@dataclass(frozen=True)
class Independence:
    """Mean entropies of the tail groups, in nats.

    ``exact`` is given all groups before, ``averaged`` given those up to S. ``correlation`` is the sum of their
    differences: the minimum divergence per frame of any independent tail. The average is over a finite number of
    continuations, which makes it slightly too low. ``distance`` is the mean total variation between the two, as in
    ``measure.Distances``.
    """

    exact: list[float]
    averaged: list[float]
    distance: list[float]

    @property
    def correlation(self) -> float:
        return sum(self.averaged) - sum(self.exact)


@torch.no_grad()
def measure_independence(
    model: Model, recording: Recording, seq_groups: int, continuations: int, seed: int
) -> Independence:
    """Continue recorded frames ``continuations`` times each, and compare the entropies."""
    predictor = Marginals(model.talker.code_predictor)
    sampling, random = model.sampling.subtalker, torch.Generator(model.device).manual_seed(seed)
    groups = PREDICTED_GROUPS - seq_groups
    exact, averaged, distance = torch.zeros(3, groups)
    for start in range(0, len(recording.codes), FRAMES):
        rows = slice(start, start + FRAMES)
        hidden = recording.hidden[rows, None].to(model.device)
        embedded = embed_inputs(model, recording.codes[rows].to(model.device))[:, : seq_groups + 1]
        inputs = torch.cat((hidden, embedded), dim=1).repeat_interleave(continuations, dim=0)
        _, probabilities = predictor.continue_frames(inputs, seq_groups, sampling, random)
        exact += torch.special.entr(probabilities).sum(-1).sum(0).cpu() / continuations
        probabilities = probabilities.unflatten(0, (-1, continuations))
        mean = probabilities.mean(1)
        distance += 0.5 * (probabilities - mean[:, None]).abs().sum(-1).mean(1).sum(0).cpu()
        averaged += torch.special.entr(mean).sum(-1).sum(0).cpu()
    count = len(recording.codes)
    return Independence(*((total / count).tolist() for total in (exact, averaged, distance)))

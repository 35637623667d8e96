"""Distance of a tail from exact decoding on held-out frames, by group."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from qwen3_tts_morph.morph.model.tail import tail_logits
from qwen3_tts_morph.morph.study.sweep import sampled_distribution

from .examples import CHUNK, Examples
from .fit import Teacher, divergences


@dataclass(frozen=True)
class Distances:
    """For each tail group, ``divergence`` in nats and ``distance`` (total variation, 0 to 1) from exact.

    Divergences are at the sub-talker's temperature; their sum over the groups is the divergence of the tail, sampled
    independently, from the exact joint distribution. Distances compare the distributions after top-k and top-p.
    """

    divergence: list[float]
    distance: list[float]

    @property
    def mean_distance(self) -> float:
        return sum(self.distance) / len(self.distance)

    def line(self) -> str:
        """Format the sum of the divergences, the mean distance, and both by group."""
        groups = " ".join(f"{one:.2f}/{two:.2f}" for one, two in zip(self.divergence, self.distance, strict=True))
        return f"{sum(self.divergence):.3f} nats per frame, distance {self.mean_distance:.4f} ({groups})"


@torch.no_grad()
def measure(parts: dict[str, torch.Tensor], teacher: Teacher, examples: Examples, seq_groups: int) -> Distances:
    """Return the distances of a tail; empty ``parts`` is the stock crossbar."""
    groups = len(teacher.heads) - seq_groups
    divergence, distance = torch.zeros(groups), torch.zeros(groups)
    heads = teacher.heads[seq_groups:].float()
    for start in range(0, len(examples), CHUNK):
        chunk = examples.take(slice(start, start + CHUNK))
        share = len(chunk) / len(examples)
        divergence += share * divergences(parts, teacher, chunk, seq_groups).cpu()
        states, tokens = chunk.last_states(seq_groups).float(), chunk.codes[:, seq_groups]
        ours = sampled_distribution(tail_logits(parts, heads, states, tokens), teacher.sampling)
        exact = torch.zeros_like(ours)
        exact.scatter_(-1, chunk.tokens[:, seq_groups:].long(), chunk.probabilities[:, seq_groups:])
        distance += share * (0.5 * (ours - exact).abs().sum(-1).mean(0)).cpu()
    return Distances(divergence.tolist(), distance.tolist())

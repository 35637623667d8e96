"""The sampler of ``decode/sampling.py`` with per-line settings in tensors, which change without a new capture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch

from ..options import TokenSampling

RowIndex: TypeAlias = "int | slice"
ALL_ROWS = slice(None)
OFF = -1.0  # no cumulative probability is below this share: top-p keeps every token


@dataclass(frozen=True)
class SamplingTensors:
    """One ``TokenSampling`` per line, as tensors ``[B]``."""

    temperatures: torch.Tensor
    cutoffs: torch.Tensor  # int64: top-k removes tokens before this index, by ascending score
    shares: torch.Tensor  # the probability that top-p removes from the low end
    scales: torch.Tensor  # the noise's factor, 0 for greedy

    @classmethod
    def allocate(cls, batch: int, device: torch.device) -> SamplingTensors:
        return cls(
            torch.ones(batch, device=device),
            torch.zeros(batch, dtype=torch.int64, device=device),
            torch.full((batch,), OFF, device=device),
            torch.zeros(batch, device=device),
        )

    def take(self, rows: torch.Tensor) -> SamplingTensors:
        return SamplingTensors(self.temperatures[rows], self.cutoffs[rows], self.shares[rows], self.scales[rows])

    def put(self, sampling: TokenSampling, vocab: int, rows: RowIndex = ALL_ROWS) -> None:
        sampled = sampling.do_sample
        kept = min(sampling.top_k, vocab) if sampling.top_k and sampled else vocab
        # Not by assignment, which would wait for the device.
        self.temperatures[rows].fill_(sampling.temperature if sampled else 1.0)
        self.cutoffs[rows].fill_(vocab - kept)
        self.shares[rows].fill_(1 - sampling.top_p if sampling.top_p < 1 and sampled else OFF)
        self.scales[rows].fill_(float(sampled))


def sample_static(scores: torch.Tensor, settings: SamplingTensors, noise: torch.Tensor) -> torch.Tensor:
    """Sample tokens, int64 ``[B]`` or ``[B, G]``, from float32 scores and noise ``[B, V]`` or ``[B, G, V]``."""
    # As ``decode.sampling.filter_logits``, with one stable sort for top-k and top-p. If tokens tie at the top-p
    # boundary, the same number is kept, but always those with the highest ids.

    def per_line(values: torch.Tensor) -> torch.Tensor:
        return values.view(-1, *[1] * (scores.dim() - 1))

    ordered, order = (scores / per_line(settings.temperatures)).sort(dim=-1, stable=True)
    cutoff = per_line(settings.cutoffs).expand(*ordered.shape[:-1], 1)
    ordered = ordered.masked_fill(ordered < ordered.gather(-1, cutoff), -torch.inf)
    removed = ordered.softmax(dim=-1).cumsum(dim=-1) <= per_line(settings.shares)
    removed[..., -1:].fill_(False)
    noisy = ordered.masked_fill(removed, -torch.inf) + noise.gather(-1, order) * per_line(settings.scales)
    return order.gather(-1, noisy.argmax(dim=-1, keepdim=True)).squeeze(-1)

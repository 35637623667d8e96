"""The sampler of ``decode/sampling.py`` with settings and noise per line, which change without a new capture.

The noise is a function of a line's seed, the frame, the group and the token: a captured graph cannot keep a
``torch.Generator`` per line. A line thus samples the same tokens in any batch, row and device, and a frame can be
recomputed. It is two rounds of a 32-bit mixer (Wellons' hash-prospector, ``[16 21f0aaad 15 735a2d97 15]``), in int64:
both multipliers are below 2**31, so no product overflows, and torch, Triton and Python agree to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from ..options import TokenSampling

GROUPS = 16  # counters per frame, one for each group
WORD = 0xFFFFFFFF
LONG_WORD = 0xFFFFFFFFFFFFFFFF
UNIFORM_BITS = 23  # (n + 1/2) / 2**23 is exact in float32 and never 0 or 1
RowIndex: TypeAlias = "int | slice"
ALL_ROWS = slice(None)
OFF = -1.0  # no cumulative probability is below this share: top-p keeps every token


def line_keys(seeds: Sequence[int]) -> torch.Tensor:
    """Return ``line_key`` of each seed: int64 ``[B, 2]`` on the CPU."""
    return torch.tensor([line_key(seed) for seed in seeds], dtype=torch.int64).view(-1, 2)


def line_key(seed: int) -> tuple[int, int]:
    """Return the two 32-bit words of a seed, scrambled."""
    # One step of Vigna's splitmix64: a bijection that gives neighbouring seeds very different keys.
    key = (seed + 0x9E3779B97F4A7C15) & LONG_WORD
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & LONG_WORD
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & LONG_WORD
    key ^= key >> 31
    return key & WORD, key >> 32


def mix(words: torch.Tensor) -> torch.Tensor:
    """Scramble 32-bit words held in int64; a bijection."""
    words = words ^ (words >> 16)
    words = (words * 0x21F0AAAD) & WORD
    words = words ^ (words >> 15)
    words = (words * 0x735A2D97) & WORD
    return words ^ (words >> 15)


def random_words(keys: torch.Tensor, counters: torch.Tensor, width: int) -> torch.Tensor:
    """Return 32-bit words ``[B, G, width]`` for keys ``[B, 2]``, counters int64 ``[B, G]`` and all tokens."""
    # Two words come from key and counter, by different formulas; no two counters of a line share either word.
    low, high = keys[:, :1], keys[:, 1:]
    first = mix((mix(counters ^ low) + high) & WORD)
    second = mix(mix((counters + high) & WORD) ^ low)
    tokens = torch.arange(width, device=keys.device)
    return mix(mix((first[..., None] + tokens) & WORD) ^ second[..., None])


def gumbel_noise(keys: torch.Tensor, counters: torch.Tensor, width: int) -> torch.Tensor:
    """Return Gumbel noise, float32 ``[B, G, width]``: the argmax of log-probabilities plus noise is a sample."""
    words = random_words(keys, counters, width) >> (32 - UNIFORM_BITS)
    uniform = (words.float() + 0.5) * 2.0**-UNIFORM_BITS
    return -(-uniform.log()).log()


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
    per_line = (-1, *[1] * (scores.dim() - 1))
    ordered, order = (scores / settings.temperatures.view(per_line)).sort(dim=-1, stable=True)
    cutoff = settings.cutoffs.view(per_line).expand(*ordered.shape[:-1], 1)
    ordered = ordered.masked_fill(ordered < ordered.gather(-1, cutoff), -torch.inf)
    removed = ordered.softmax(dim=-1).cumsum(dim=-1) <= settings.shares.view(per_line)
    removed[..., -1:].fill_(False)
    noisy = ordered.masked_fill(removed, -torch.inf) + noise.gather(-1, order) * settings.scales.view(per_line)
    return order.gather(-1, noisy.argmax(dim=-1, keepdim=True)).squeeze(-1)

"""Stateless random numbers: a function of a line's seed, the frame, the group and the token.

A captured graph cannot keep a ``torch.Generator`` per line. With this hash a line samples the same tokens in any
batch, row and device, and a frame can be recomputed. It is two rounds of a 32-bit mixer (Wellons' hash-prospector,
``[16 21f0aaad 15 735a2d97 15]``), in int64: both multipliers are below 2**31, so no product overflows, and torch,
Triton and Python agree to the bit.
"""

from collections.abc import Sequence

import torch

GROUPS = 16  # counters per frame, one for each group
WORD = 0xFFFFFFFF
LONG_WORD = 0xFFFFFFFFFFFFFFFF
UNIFORM_BITS = 23  # (n + 1/2) / 2**23 is exact in float32 and never 0 or 1


def line_keys(seeds: Sequence[int]) -> torch.Tensor:
    """Return ``line_key`` of each seed: int64 ``[B, 2]`` on the CPU."""
    return torch.tensor([line_key(seed) for seed in seeds], dtype=torch.int64).view(-1, 2)


def line_key(seed: int) -> tuple[int, int]:
    """Return the two 32-bit words of a seed, scrambled (splitmix64)."""
    key = _splitmix(seed & LONG_WORD)
    return key & WORD, key >> 32


def _splitmix(seed: int) -> int:
    """Return one step of Vigna's splitmix64: a bijection that gives neighbouring seeds very different keys."""
    value = (seed + 0x9E3779B97F4A7C15) & LONG_WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & LONG_WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & LONG_WORD
    return value ^ (value >> 31)


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

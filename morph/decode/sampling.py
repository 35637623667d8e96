"""Sample tokens from logits, in float32 and in transformers' order, so that equal seeds give equal codes.

Order (transformers 4.57 and 5, ``GenerationMixin._get_logits_processor``): repetition penalty, min_new_tokens,
suppressed tokens, temperature, top-k, top-p, softmax, multinomial.
"""

from __future__ import annotations

import math
from hashlib import blake2b

import torch

from ..model.finite import not_finite
from ..options import TokenSampling


def line_stream(seed: int, device: torch.device) -> torch.Generator:
    """Return the random generator of a line's seed."""
    # The generator of the CPU reads only the lower 32 bits of its seed: s + 2^32 would be s.
    if not 0 <= seed < 2 ** (32 if device.type == "cpu" else 63):
        seed = int.from_bytes(blake2b(str(seed).encode(), digest_size=7).digest(), "big")
    return torch.Generator(device=device).manual_seed(seed)


def penalize_repetition(scores: torch.Tensor, seen: torch.Tensor, penalty: float) -> torch.Tensor:
    """Lower the scores of tokens that a line has used. ``scores`` and ``seen`` (bool) are ``[B, V]``."""
    if penalty == 1.0:
        return scores
    return torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)


def filter_logits(scores: torch.Tensor, sampling: TokenSampling) -> torch.Tensor:
    """Apply temperature, top-k and top-p to float32 ``scores`` ``[..., V]``; removed tokens become -inf."""
    if sampling.temperature != 1.0:
        scores = scores / sampling.temperature
    if sampling.top_k:
        kth = scores.topk(min(sampling.top_k, scores.shape[-1]), dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < kth, -torch.inf)
    if sampling.top_p < 1.0:
        ordered, order = scores.sort(dim=-1, descending=False)
        remove = ordered.softmax(dim=-1).cumsum(dim=-1) <= (1 - sampling.top_p)
        remove[..., -1:] = False
        scores = scores.masked_fill(remove.scatter(-1, order, remove), -torch.inf)
    return scores


def distribution(logits: torch.Tensor, sampling: TokenSampling) -> torch.Tensor:
    """Return the sampler's probabilities, float32 ``[B, ..., V]``; greedy puts all on the largest logit."""
    check_finite(logits)
    scores = logits.float()
    if not sampling.do_sample:
        return torch.zeros_like(scores).scatter_(-1, scores.argmax(dim=-1, keepdim=True), 1.0)
    return filter_logits(scores, sampling).softmax(dim=-1)


def sample_tokens(logits: torch.Tensor, sampling: TokenSampling, stream: torch.Generator | None) -> torch.Tensor:
    """Sample tokens, int64 ``[B]`` or ``[B, G]``, from logits ``[B, V]`` or ``[B, G, V]`` of any float dtype.

    ``stream`` None: torch's default.
    """
    if not sampling.do_sample:
        check_finite(logits)
        return logits.float().argmax(dim=-1)
    probabilities = distribution(logits, sampling)
    flat = probabilities.reshape(-1, probabilities.shape[-1])
    return torch.multinomial(flat, 1, generator=stream).reshape(probabilities.shape[:-1])


def check_finite(logits: torch.Tensor) -> None:
    """Raise NotFinite if a logit is NaN or infinite: sampling from it would break CUDA for the whole process.

    The maximum is NaN if any logit is. -inf passes: it marks a token that may not be sampled. On a GPU this costs one
    device sync per sample.
    """
    if not math.isfinite(float(logits.amax())):
        raise not_finite(logits.dtype)

"""Sample tokens from logits, in float32 and in transformers' order, so that equal seeds give equal codes.

Order (transformers 4.57 and 5, ``GenerationMixin._get_logits_processor``): repetition penalty, min_new_tokens,
suppressed tokens, temperature, top-k, top-p, softmax, multinomial.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import TypeAlias, TypeVar

import torch

from ..model.finite import NotFinite, not_finite
from ..options import TokenSampling

Randomness: TypeAlias = "torch.Generator | Sequence[torch.Generator] | None"
"""One stream for a whole batch (None: torch's default, as upstream), or a stream per line."""

Setting = TypeVar("Setting", TokenSampling, float)
TokenSamplings: TypeAlias = "TokenSampling | Sequence[TokenSampling]"
"""One for a whole batch, or one per line."""


def shared(settings: Sequence[Setting]) -> Setting | Sequence[Setting]:
    """Return the setting that all lines have, or a setting per line."""
    return settings[0] if all(one == settings[0] for one in settings) else settings


def by_setting(
    settings: Sequence[Setting], compute: Callable[[Setting, list[int]], torch.Tensor]
) -> torch.Tensor:
    """Return ``[B, ...]``, computed together for the lines (indices into the batch) of each setting."""
    groups: dict[Setting, list[int]] = {}
    for line, setting in enumerate(settings):
        groups.setdefault(setting, []).append(line)
    computed = torch.cat([compute(setting, lines) for setting, lines in groups.items()])
    order = [line for lines in groups.values() for line in lines]
    return computed[sorted(range(len(order)), key=order.__getitem__)]


def line_streams(seeds: Sequence[int], device: torch.device) -> list[torch.Generator]:
    """Return one generator per line: a line's seed gives the same samples in any batch."""
    # The generator of the CPU reads only the lower 32 bits of its seed: s + 2^32 would be s.
    bits = 32 if device.type == "cpu" else 63
    return [torch.Generator(device=device).manual_seed(_generator_seed(seed, bits)) for seed in seeds]


def _generator_seed(seed: int, bits: int) -> int:
    """Return the seed of a generator that reads ``bits``: a digest for a seed that has more."""
    if 0 <= seed < 2**bits:
        return seed
    return int.from_bytes(blake2b(str(seed).encode(), digest_size=7).digest(), "big")


def streams_of(randomness: Randomness, lines: Sequence[int]) -> Randomness:
    """Return the streams of some lines of a batch."""
    return [randomness[line] for line in lines] if isinstance(randomness, Sequence) else randomness


def penalize_repetition(
    scores: torch.Tensor, seen: torch.Tensor, penalty: float | Sequence[float]
) -> torch.Tensor:
    """Lower the scores of tokens that a line has used. ``scores`` and ``seen`` (bool) are ``[B, V]``.

    ``penalty``: of the whole batch, or one per line.
    """
    if isinstance(penalty, Sequence):
        return by_setting(penalty, lambda one, lines: penalize_repetition(scores[lines], seen[lines], one))
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
        scores = _keep_top_p(scores, sampling.top_p)
    return scores


def _keep_top_p(scores: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the most probable tokens up to and including the one that crosses ``top_p``."""
    ordered, order = scores.sort(dim=-1, descending=False)
    remove = ordered.softmax(dim=-1).cumsum(dim=-1) <= (1 - top_p)
    remove[..., -1:] = False
    return scores.masked_fill(remove.scatter(-1, order, remove), -torch.inf)


def distribution(logits: torch.Tensor, sampling: TokenSamplings) -> torch.Tensor:
    """Return the sampler's probabilities, float32 ``[B, ..., V]``; greedy puts all on the largest logit."""
    if isinstance(sampling, Sequence):
        return by_setting(sampling, lambda one, lines: distribution(logits[lines], one))
    check_finite(logits)
    scores = logits.float()
    if not sampling.do_sample:
        return torch.zeros_like(scores).scatter_(-1, scores.argmax(dim=-1, keepdim=True), 1.0)
    return filter_logits(scores, sampling).softmax(dim=-1)


def sample_tokens(logits: torch.Tensor, sampling: TokenSamplings, randomness: Randomness) -> torch.Tensor:
    """Sample one token for each row of logits.

    Args:
        logits: ``[B, V]``, or ``[B, G, V]`` for G groups at once; any float dtype.
        sampling: temperature and the rest, of the batch or of each line; greedy when it does not sample.
        randomness: see ``Randomness``; a list has B generators.

    Returns:
        Tokens ``[B]`` or ``[B, G]``, int64.
    """
    if isinstance(sampling, Sequence):
        check_finite(logits)  # before any line's random stream moves on
        return by_setting(
            sampling, lambda one, lines: sample_tokens(logits[lines], one, streams_of(randomness, lines))
        )
    if not sampling.do_sample:
        check_finite(logits)
        return logits.float().argmax(dim=-1)
    probabilities = distribution(logits, sampling)
    if isinstance(randomness, Sequence):
        rows = [_multinomial(row, stream) for row, stream in zip(probabilities, randomness, strict=True)]
        return torch.stack(rows)
    return _multinomial(probabilities, randomness)


def check_finite(logits: torch.Tensor) -> None:
    """Raise NotFinite where a logit is NaN or infinite: sampling from it would break CUDA for the whole process.

    The maximum is NaN if any logit is. -inf passes: it marks a token that may not be sampled. On a GPU this costs one
    device sync per sample.
    """
    if not math.isfinite(float(logits.amax())):
        raise not_finite(logits.dtype)


class BrokenLines:
    """The lines of a batch whose logits are not finite: they end, and the others go on as if nothing were."""

    def __init__(self) -> None:
        self._found: torch.Tensor | None = None

    def apply(self, compute: Callable[[torch.Tensor], torch.Tensor], logits: torch.Tensor) -> torch.Tensor:
        """Return what ``compute`` makes of logits ``[B, ...]``, with zeros for those of broken lines, which are noted.

        ``compute`` raises NotFinite for others, before it changes anything.
        """
        try:
            return compute(logits)
        except NotFinite:
            broken = ~logits.flatten(1).amax(1).isfinite()
        self._found = broken if self._found is None else self._found | broken
        return compute(logits.masked_fill(broken.view(-1, *[1] * (logits.dim() - 1)), 0.0))

    def take(self) -> list[int]:
        """Return the lines (indices into the batch) that were found since the last call."""
        found, self._found = self._found, None
        return [] if found is None else found.nonzero()[:, 0].tolist()


def _multinomial(probabilities: torch.Tensor, stream: torch.Generator | None) -> torch.Tensor:
    flat = probabilities.reshape(-1, probabilities.shape[-1])
    return torch.multinomial(flat, 1, generator=stream).reshape(probabilities.shape[:-1])

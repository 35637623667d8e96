"""The rule of lossless decoding: which drafted tokens are kept, and what is sampled where one is rejected.

Speculative sampling (Leviathan, Kalman and Matias 2023, section 2.3; Chen et al. 2023): a drafted token x is kept
with probability min(1, p(x) / q(x)), where q is what it was sampled from and p what exact decoding samples from; at
the first rejection the token is sampled again from max(p - q, 0), normalised. p and q are both filtered (temperature,
top-k, top-p). Greedy decoding puts all of p on one token and uses q only to order the candidates.

The first groups that are not exact yet have several candidates, sampled from q without replacement and tried in turn,
each against the residual of p after the rejections before it (recursive rejection sampling: Jeon et al. 2024, section
3.2). A row is one candidate for each of these groups followed by drafts. No draft depends on another group's, so all
rows share the same candidates and drafts.

Shapes: B lines, C candidates for one group, K rows, one for every combination of candidates, G groups from the first
that is not exact in every line, V codes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from qwen3_tts_morph.morph.decode.sampling import Randomness, TokenSamplings, distribution
from qwen3_tts_morph.morph.model.weights.linear import Weight
from qwen3_tts_morph.morph.options import TokenSampling


@dataclass(frozen=True)
class Noise:
    """Noise of one pass, the same amount in every pass, so that a line's stream is the same in every batch.

    ``tokens`` ``[B, G, V]`` and ``correction`` ``[B, V]`` are exponential; ``verdicts`` ``[B, G]`` and ``trials``,
    ``[B, C]`` for each group with C candidates, are uniform.
    """

    tokens: torch.Tensor
    correction: torch.Tensor
    trials: tuple[torch.Tensor, ...]
    verdicts: torch.Tensor

    @classmethod
    def make(
        cls,
        randomness: Randomness,
        going: Sequence[bool],
        heads: Weight,
        counts: Sequence[int],
        sampling: TokenSamplings,
    ) -> Noise:
        """Sample noise for the lines that are ``going``. Lines that are done, and greedy ones, take nothing.

        ``counts`` are those of the candidates, see ``propose``.
        """
        groups, vocabulary = heads.shape[:2]
        exponential = torch.ones(len(going), groups + 1, vocabulary, device=heads.device)
        uniform = torch.zeros(len(going), sum(counts) + groups, device=heads.device)
        samplings = [sampling] * len(going) if isinstance(sampling, TokenSampling) else sampling
        if isinstance(randomness, Sequence):
            for row, stream in enumerate(randomness):
                if going[row] and samplings[row].do_sample:
                    exponential[row].exponential_(generator=stream)
                    uniform[row].uniform_(generator=stream)
        elif any(one.do_sample for one in samplings):
            exponential.exponential_(generator=randomness)
            uniform.uniform_(generator=randomness)
        *trials, verdicts = uniform.split((*counts, groups), dim=1)
        return cls(exponential[:, 1:], exponential[:, 0], tuple(trials), verdicts)

    def of(self, start: int) -> Noise:
        """Return the noise of the groups after ``start``."""
        return Noise(self.tokens[:, start:], self.correction, self.trials, self.verdicts[:, start:])


ALL_TOKENS = TokenSampling(temperature=1.0, top_k=0, top_p=1.0)


def drafting(logits: torch.Tensor, sampling: TokenSamplings) -> torch.Tensor:
    """Return the probabilities that a draft is sampled with. Greedy keeps all tokens, to order candidates."""
    if isinstance(sampling, Sequence):
        return distribution(logits, [one if one.do_sample else ALL_TOKENS for one in sampling])
    return distribution(logits, sampling if sampling.do_sample else ALL_TOKENS)


def propose(codes: torch.Tensor, drafted: torch.Tensor, known: torch.Tensor, noise: Noise) -> torch.Tensor:
    """Return each line's tries ``[B, K, G]``: its exact groups, candidates for the next, and one draft for the others.

    ``noise`` has trials for each group with candidates. Arguments are those of ``settle``.
    """
    lines, tokens = torch.arange(len(codes), device=codes.device), pick(drafted, noise.tokens)
    tokens = torch.where(known, codes, tokens)
    tries = tokens[:, None].repeat(1, math.prod(trials.shape[1] for trials in noise.trials), 1)
    rows = torch.arange(tries.shape[1], device=codes.device)
    for level in levels(known, noise):
        candidates = rank(drafted[lines, level.index], noise.tokens[lines, level.index], level.count)
        of_rows = candidates[:, rows // level.stride % level.count]
        as_drafted = tries[lines, :, level.index]
        tries[lines, :, level.index] = torch.where(level.exists[:, None], of_rows, as_drafted)
    return tries


@dataclass(frozen=True)
class Level:
    """A group with candidates.

    Args:
        index: its index in each line, ``[B]``; the last group where the line has no such group.
        exists: bool ``[B]``, whether the line has it.
        trials: uniform noise ``[B, C]``, one value per candidate.
        stride: how many consecutive rows share a candidate.
    """

    index: torch.Tensor
    exists: torch.Tensor
    trials: torch.Tensor
    stride: int

    @property
    def count(self) -> int:
        """The number of candidates."""
        return self.trials.shape[1]


def levels(known: torch.Tensor, noise: Noise) -> list[Level]:
    """Return the groups with candidates: each line's first that are not ``known`` ``[B, G]``."""
    first, end, found = known.sum(dim=1), known.shape[1], []
    for depth, trials in enumerate(noise.trials):
        index, after = first + depth, noise.trials[depth + 1 :]
        stride = math.prod(later.shape[1] for later in after)
        found.append(Level(index.clamp(max=end - 1), index < end, trials, stride))
    return found


@dataclass(frozen=True)
class Settled:
    """The result of a verdict.

    The first ``kept`` ``[B]`` of ``tokens`` ``[B, G]`` are exact, and so is the corrected one after them. ``row``
    ``[B]`` is the try that they come from.
    """

    tokens: torch.Tensor
    kept: torch.Tensor
    row: torch.Tensor


def settle(
    exact: torch.Tensor, drafted: torch.Tensor, tries: torch.Tensor, known: torch.Tensor, noise: Noise
) -> Settled:
    """Keep candidates and the drafted tokens after them up to the first rejection, and correct that one.

    Args:
        exact: ``[B, K, G, V]``, the distributions of exact decoding, given the tokens before each group.
        drafted: ``[B, G, V]``, the distributions that the tries were sampled from.
        tries: ``[B, K, G]``: see ``propose``.
        known: bool ``[B, G]``, tokens that are exact already and are not judged.
        noise: of these groups.
    """
    lines, groups = torch.arange(len(tries), device=tries.device), tries.shape[2]
    row, judged = torch.zeros_like(lines), []
    for level in levels(known, noise):
        index, rows = level.index, row[:, None] + level.stride * torch.arange(level.count, device=row.device)
        candidates = tries[lines[:, None], rows, index[:, None]]
        chosen, found, left = try_candidates(
            exact[lines, row, index], drafted[lines, index], candidates, level.trials
        )
        row = row + level.stride * chosen
        judged.append((level, found, left))
    exact, tokens = exact[lines, row], tries[lines, row]
    keeps = known | accept(exact, drafted, tokens, noise.verdicts)
    for level, found, _ in judged:
        keeps[lines, level.index] = torch.where(level.exists, found, keeps[lines, level.index])
    kept = keeps.long().cumprod(dim=1).sum(dim=1)
    end = kept.clamp(max=groups - 1)
    rest = residual(exact[lines, end], drafted[lines, end])
    for level, _, left in judged:
        rest = torch.where((level.exists & (level.index == end))[:, None], left, rest)
    corrected = pick(rest, noise.correction)
    tokens[lines, end] = torch.where(kept < groups, corrected, tokens[lines, end])
    return Settled(tokens, kept, row)


def try_candidates(
    exact: torch.Tensor, drafted: torch.Tensor, candidates: torch.Tensor, verdicts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Recursive rejection sampling without replacement.

    Args:
        exact: ``[B, V]``, the target distribution.
        drafted: ``[B, V]``, the distribution that the candidates were sampled from, without replacement.
        candidates: ``[B, K]``; if fewer than K tokens have a positive probability, the last are invalid and rejected.
        verdicts: ``[B, K]``, uniform.

    Returns:
        The index of the kept candidate ``[B]`` (0 if none is), whether one is kept ``[B]``, and the distribution
        ``[B, V]`` to sample from if none is.
    """
    proposals, wanted = without_earlier(drafted, candidates), []
    for proposal in proposals.unbind(dim=1):
        wanted.append(exact)
        exact = residual(exact, proposal)
    keeps = accept(torch.stack(wanted, dim=1), proposals, candidates, verdicts)
    return keeps.long().argmax(dim=1), keeps.any(dim=1), exact


def without_earlier(drafted: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    """Return ``[B, K, V]``: for each candidate ``[B, K]``, ``drafted`` ``[B, V]`` without the candidates before it."""
    count = candidates.shape[1]
    if count == 1:
        return drafted[:, None]
    indices = torch.arange(count - 1, device=drafted.device)
    # [B, K - 1, K - 1]: for each but the first, a row with the candidates before it, the last repeated
    earlier = candidates[:, torch.minimum(indices, indices[:, None])]
    rest = drafted[:, None].repeat(1, count - 1, 1).scatter_(2, earlier, 0.0)
    return torch.cat((drafted[:, None], normalised(rest)), dim=1)


def normalised(weights: torch.Tensor) -> torch.Tensor:
    """Return probabilities ``[..., V]`` in proportion to weights; all zeros stay zero."""
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def accept(
    exact: torch.Tensor, drafted: torch.Tensor, tokens: torch.Tensor, verdicts: torch.Tensor
) -> torch.Tensor:
    """Return bool ``[...]``: each of ``tokens`` is accepted with probability min(1, exact / drafted).

    ``verdicts`` are uniform. A token that cannot have been sampled is rejected.
    """
    wanted, offered = (of.gather(-1, tokens[..., None])[..., 0] for of in (exact, drafted))
    return (offered > 0) & (verdicts * offered < wanted)


def residual(exact: torch.Tensor, drafted: torch.Tensor) -> torch.Tensor:
    """Return the distribution that replaces a rejected token: ``max(exact - drafted, 0)`` ``[B, V]``, normalised.

    If the two are equal, only rounding can cause a rejection, and exact itself is the right distribution.
    """
    rest = (exact - drafted).clamp_(min=0)
    total = rest.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, rest / total, exact)


def pick(weights: torch.Tensor, exponential: torch.Tensor) -> torch.Tensor:
    """Sample one token ``[...]`` with probabilities in proportion to ``weights`` ``[..., V]``.

    This is the exponential race of ``torch.multinomial``, with the noise passed in. A weight of 0 is never sampled.
    """
    return (weights / exponential).argmax(dim=-1)


def rank(weights: torch.Tensor, exponential: torch.Tensor, count: int) -> torch.Tensor:
    """Sample ``[..., count]`` tokens without replacement, in order; the first is the one that ``pick`` returns."""
    return (weights / exponential).topk(count, dim=-1).indices

"""The rule of lossless decoding: which drafted tokens are kept, and what is drawn where one is refused.

Speculative sampling (Leviathan, Kalman and Matias 2023, section 2.3; Chen et al. 2023): a drafted token x is kept
with probability min(1, p(x) / q(x)), where q is what it was drawn from and p what exact decoding draws from; at the
first refusal the token is drawn anew from max(p - q, 0), normalised. p and q are both filtered (temperature, top-k,
top-p); greedy, p has one token, and q only orders what is tried.

The first group has K candidates, drawn from q without replacement and tried in turn, each against what its
forerunners' refusals have left of p (recursive rejection sampling: Jeon et al. 2024, section 3.2). The drafts behind it
are the same for all of them: they do not depend on it.

Shapes: B lines, K candidates, G groups from the first that some line lacks, V codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .options import Draw
from .products import Weight
from .sampling import Randomness, distribution


@dataclass(frozen=True)
class Noise:
    """What one pass draws with: ``tokens`` ``[B, G, V]`` and ``correction`` ``[B, V]`` are exponential, ``trials``
    ``[B, K]`` and ``verdicts`` ``[B, G]`` uniform. As many for every pass, so that a line's stream runs alike in
    every batch.
    """

    tokens: torch.Tensor
    correction: torch.Tensor
    trials: torch.Tensor
    verdicts: torch.Tensor

    @classmethod
    def make(
        cls, randomness: Randomness, going: Sequence[bool], heads: Weight, candidates: int, draw: Draw
    ) -> Noise:
        """Draw for the lines that are ``going``; a line that is done draws nothing from its stream, nor does greedy."""
        groups, vocabulary = heads.shape[:2]
        exponential = torch.ones(len(going), groups + 1, vocabulary, device=heads.device)
        uniform = torch.zeros(len(going), candidates + groups, device=heads.device)
        if not draw.do_sample:
            pass
        elif isinstance(randomness, Sequence):
            for row, stream in enumerate(randomness):
                if going[row]:
                    exponential[row].exponential_(generator=stream)
                    uniform[row].uniform_(generator=stream)
        else:
            exponential.exponential_(generator=randomness)
            uniform.uniform_(generator=randomness)
        return cls(exponential[:, 1:], exponential[:, 0], uniform[:, :candidates], uniform[:, candidates:])

    def of(self, start: int) -> Noise:
        """The noise of the groups behind ``start``."""
        return Noise(self.tokens[:, start:], self.correction, self.trials, self.verdicts[:, start:])


def drafting(logits: torch.Tensor, draw: Draw) -> torch.Tensor:
    """The probabilities that a draft is drawn with. Greedy ones keep all tokens, so that candidates have an order."""
    return distribution(logits, draw if draw.do_sample else Draw(temperature=1.0, top_k=0, top_p=1.0))


def propose(codes: torch.Tensor, drafted: torch.Tensor, known: torch.Tensor, noise: Noise) -> torch.Tensor:
    """Each line's tries ``[B, K, G]``: exact groups as they are, K candidates for the first that is not, one draft
    for those behind it. Arguments are ``settle``'s.
    """
    lines, first = torch.arange(len(codes), device=codes.device), first_unknown(known)
    candidates = rank(drafted[lines, first], noise.tokens[lines, first], noise.trials.shape[1])
    tokens = torch.where(known, codes, pick(drafted, noise.tokens))
    tries = tokens[:, None].repeat(1, candidates.shape[1], 1)
    is_done = known[lines, first][:, None]
    tries[lines, :, first] = torch.where(is_done, tries[lines, :, first], candidates)
    return tries


def first_unknown(known: torch.Tensor) -> torch.Tensor:
    """The place ``[B]`` of a line's first group that is not known, the last of ``[B, G]`` where all are."""
    return known.sum(dim=1).clamp(max=known.shape[1] - 1)


@dataclass(frozen=True)
class Settled:
    """What a verdict leaves: ``tokens`` ``[B, G]``, exact up to the first ``kept`` ``[B]`` and, corrected, the one
    behind them; ``row`` ``[B]``, the try whose tokens they are.
    """

    tokens: torch.Tensor
    kept: torch.Tensor
    row: torch.Tensor


def settle(
    exact: torch.Tensor, drafted: torch.Tensor, tries: torch.Tensor, known: torch.Tensor, noise: Noise
) -> Settled:
    """Keep a candidate and the drafted tokens behind it up to the first refusal, and correct that one.

    Args:
        exact: ``[B, K, G, V]``, what exact decoding draws from after the tokens before each group.
        drafted: ``[B, G, V]``, what the tries were drawn from.
        tries: ``[B, K, G]``: see ``propose``.
        known: ``[B, G]``, tokens that are exact already and not to be judged.
        noise: of these groups.
    """
    lines, groups = torch.arange(len(tries), device=tries.device), tries.shape[2]
    first = first_unknown(known)
    row, found, left = try_candidates(
        exact[lines, 0, first], drafted[lines, first], tries[lines, :, first], noise.trials
    )
    exact, tokens = exact[lines, row], tries[lines, row]
    keeps = known | accept(exact, drafted, tokens, noise.verdicts)
    keeps[lines, first] = known[lines, first] | found
    kept = keeps.long().cumprod(dim=1).sum(dim=1)
    place = kept.clamp(max=groups - 1)
    rest = residual(exact[lines, place], drafted[lines, place])
    rest = torch.where((place == first)[:, None], left, rest)
    corrected = pick(rest, noise.correction)
    tokens[lines, place] = torch.where(kept < groups, corrected, tokens[lines, place])
    return Settled(tokens, kept, row)


def try_candidates(
    exact: torch.Tensor, drafted: torch.Tensor, candidates: torch.Tensor, verdicts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Recursive rejection sampling without replacement.

    Args:
        exact: ``[B, V]``, what is to be drawn from.
        drafted: ``[B, V]``, what the candidates were drawn from, each without those before it.
        candidates: ``[B, K]``; with fewer tokens of positive probability than K, the last are none and are refused.
        verdicts: ``[B, K]``, uniform.

    Returns:
        Which candidate is kept ``[B]`` (0 where none is), whether one is, and from what a token is drawn where none is
        ``[B, V]``.
    """
    row = torch.zeros_like(candidates[:, 0])
    found = torch.zeros_like(row, dtype=torch.bool)
    for place in range(candidates.shape[1]):
        token = candidates[:, place]
        keeps = accept(exact, drafted, token, verdicts[:, place])
        row = torch.where(keeps & ~found, place, row)
        found = found | keeps
        exact = normalised(residual(exact, drafted))
        drafted = normalised(drafted.scatter(1, token[:, None], 0.0))
    return row, found, exact


def normalised(weights: torch.Tensor) -> torch.Tensor:
    """Probabilities ``[B, V]`` in proportion to weights; all zero where those are."""
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


def accept(
    exact: torch.Tensor, drafted: torch.Tensor, tokens: torch.Tensor, verdicts: torch.Tensor
) -> torch.Tensor:
    """Bool ``[...]``: true with probability min(1, exact / drafted) of each of ``tokens``; ``verdicts`` are uniform.

    False for what cannot have been drawn.
    """
    wanted, offered = (of.gather(-1, tokens[..., None])[..., 0] for of in (exact, drafted))
    return (offered > 0) & (verdicts * offered < wanted)


def residual(exact: torch.Tensor, drafted: torch.Tensor) -> torch.Tensor:
    """What a refused token is drawn from anew, up to its scale: ``max(exact - drafted, 0)`` ``[B, V]``.

    Where the two are equal nothing is refused; should rounding do it, exact itself is right.
    """
    rest = (exact - drafted).clamp(min=0)
    return torch.where(rest.sum(dim=-1, keepdim=True) > 0, rest, exact)


def pick(weights: torch.Tensor, exponential: torch.Tensor) -> torch.Tensor:
    """Draw one token ``[...]`` with probabilities in proportion to ``weights`` ``[..., V]``: the race that
    ``torch.multinomial`` runs, with noise from outside. Never one of weight 0.
    """
    return (weights / exponential).argmax(dim=-1)


def rank(weights: torch.Tensor, exponential: torch.Tensor, count: int) -> torch.Tensor:
    """Draw ``[..., count]`` different tokens, one after another: who comes in behind the winner of ``pick``'s race."""
    return (weights / exponential).topk(count, dim=-1).indices

"""Lossless decoding of groups 1-15: the crossbar drafts, one causal pass verifies, a rule accepts or corrects.

Speculative sampling (Leviathan, Kalman and Matias 2023, section 2.3; Chen et al. 2023): a drafted token x is kept
with probability min(1, p(x) / q(x)), where q is what it was drawn from and p what exact decoding draws from; at the
first refusal the token is drawn anew from max(p - q, 0), normalised. What comes out is distributed as SEQ_GROUPS=15,
whatever the draft is worth; a poor draft only takes more passes. p and q are both filtered (temperature, top-k,
top-p). Greedy is the case where each has one token.

The pass that refuses a group has computed the exact state of that group too, and from it the next draft is made: so
every pass finishes one group at least, and a frame takes at most the 15 passes of exact decoding. That also holds for
one sequential group to begin with, hence more of them only make the passes narrower.

Where it ends: a pass over several positions may round otherwise than one over a single position, so the codes are
those of exact decoding bit for bit nowhere by promise; greedy codes agree in float32 up to ties. Sampled ones
consume a line's stream otherwise: the same seed gives another take of the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from .cache import KeyValueCache
from .options import Draw
from .predictor import Predictor
from .products import Weight, crossbar
from .sampling import Randomness, distribution
from .tail import Tail
from .weights import stack


@dataclass(frozen=True)
class Reached:
    """How far each line of a batch is within its frame: ``done`` ``[B]`` groups are exact, ``start`` at least.

    ``states`` ``[B, H]`` are what the last of them was drawn from, ``tokens`` ``[B]`` what was drawn.
    """

    start: int
    done: torch.Tensor
    states: torch.Tensor
    tokens: torch.Tensor


Drafter: TypeAlias = Callable[[Reached], torch.Tensor]
"""Gives logits ``[B, G - start, V]`` of the groups behind ``start``; those that a line has done are not read."""


def crossbar_drafter(heads: Weight) -> Drafter:
    """Draft by the crossbar with ``heads`` ``[G, V, H]``, the checkpoint's own or others trained for it."""

    def draft(reached: Reached) -> torch.Tensor:
        return crossbar(heads[reached.start :], reached.states)

    return draft


def tails_drafter(heads: Weight, tails: Mapping[int, Tail]) -> Drafter:
    """Draft by ``tails``, each for lines with so many exact groups, and by the stock crossbar where there is none."""
    stock = crossbar_drafter(heads)

    def draft(reached: Reached) -> torch.Tensor:
        logits = stock(reached)
        for groups, tail in tails.items():
            rows = (reached.done == groups).nonzero()[:, 0]
            if len(rows):
                trained = tail.logits(heads, reached.states[rows], reached.tokens[rows])
                logits[rows, groups - reached.start :] = trained.to(logits.dtype)
        return logits

    return draft


@dataclass
class Tally:
    """What drafts were worth, in frames decoded so far.

    ``frames`` and ``passes`` count batches of frames, as a batch goes on until its last line is done;
    ``line_frames`` and ``line_passes`` count each line's own. ``offered`` and ``accepted`` count drafted tokens
    that a verdict was reached for, by group (index 0 is group 1).
    """

    frames: int = 0
    passes: int = 0
    line_frames: int = 0
    line_passes: int = 0
    offered: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def begin(self, groups: int, lines: int, passes: int) -> None:
        """Take the sequential passes that a batch of frames starts with."""
        self.frames += 1
        self.passes += passes
        self.line_frames += lines
        self.line_passes += lines * passes
        if not self.offered:
            self.offered, self.accepted = [0] * groups, [0] * groups

    def add(self, before: Sequence[int], accepted: Sequence[int]) -> None:
        """Take one pass: each line's exact groups before it, and with the drafted tokens that were kept."""
        groups = len(self.offered)
        self.passes += 1
        for known, kept in zip(before, accepted, strict=True):
            self.line_passes += known < groups
            for group in range(known, min(kept + 1, groups)):
                self.offered[group] += 1
                self.accepted[group] += group < kept

    @property
    def mean_passes(self) -> float:
        """Passes a frame, as batches take them."""
        return self.passes / max(1, self.frames)

    def describe(self) -> str:
        """For logs."""
        return f"{self.mean_passes:.2f} passes of the predictor a frame in the mean of {self.frames}"


class SpeculativePredictor(Predictor):
    """A ``Predictor`` whose frames are distributed as with 15 sequential groups, whatever ``seq_groups`` is.

    Args:
        code_predictor: upstream's.
        draft: what drafts; None is the crossbar with the tails, and the checkpoint's own heads where there is none.
        tails: as ``Predictor``'s.

    ``tally`` counts passes and accepted tokens.
    """

    def __init__(
        self,
        code_predictor: Any,
        draft: Drafter | None = None,
        tails: Mapping[int, Tail] | None = None,
    ):
        super().__init__(code_predictor, tails)
        self.tables = stack(code_predictor.model.codec_embedding)  # [G, V, H_talker]
        self.draft = draft or tails_drafter(self.heads, self.tails)
        self.tally = Tally()

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        draw: Draw,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Predict a frame's groups; see ``Predictor.decode_frame``.

        ``seq_groups`` groups run sequentially before the first draft. A line that is done draws no more, so that
        its stream does not depend on its batch mates.
        """
        return self._decode(hidden, embedding, seq_groups, len(self.heads), draw, randomness)

    def _decode(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        max_passes: int,
        draw: Draw,
        randomness: Randomness,
    ) -> torch.Tensor:
        """A frame within ``max_passes``: groups that are not exact by then stay as the last draft has them."""
        cache, groups = self._new_cache(), len(self.heads)
        first, states = self._decode_sequential(hidden, embedding, seq_groups, draw, randomness, cache)
        codes = torch.nn.functional.pad(first, (0, groups - seq_groups))
        done, passes = [seq_groups] * len(codes), seq_groups
        self.tally.begin(groups, len(codes), seq_groups)
        while (start := min(done)) < groups:
            noise = Noise.make(randomness, [length < groups for length in done], self.heads, draw).of(start)
            known = torch.tensor(done, device=codes.device)
            last = codes.gather(1, known[:, None] - 1)[:, 0]
            drafted = distribution(self.draft(Reached(start, known, states, last)), draw)
            is_known = torch.arange(start, groups, device=codes.device) < known[:, None]
            codes[:, start:] = torch.where(is_known, codes[:, start:], pick(drafted, noise.tokens))
            if passes == max_passes:
                break
            passed = self._pass(codes, start, cache)
            exact = distribution(crossbar(self.heads[start:], passed), draw)
            codes[:, start:], kept = settle(exact, drafted, codes[:, start:], is_known, noise)
            states = passed[torch.arange(len(codes), device=codes.device), kept.clamp(max=groups - start - 1)]
            lengths = (start + kept).tolist()
            self.tally.add(done, lengths)
            done, passes = [min(length + 1, groups) for length in lengths], passes + 1
        return codes

    def _pass(self, codes: torch.Tensor, start: int, cache: KeyValueCache) -> torch.Tensor:
        """The states ``[B, G - start, H]`` that groups ``start + 1`` .. G are exactly drawn from, given ``codes``.

        All lines run the same positions; one that is further along computes some of its exact groups again.
        """
        cache.crop(start + 1)  # the pair of the prefill, and all tokens but the last of those done
        groups = torch.arange(start - 1, len(self.heads) - 1, device=codes.device)
        return self._run(self.tables[groups, codes[:, start - 1 : -1]], start + 1, cache)


class BoundedPredictor(SpeculativePredictor):
    """Lossless decoding that is broken off: ``seq_groups`` is the number of passes that a frame may take.

    The same passes as ``Predictor`` with the same ``seq_groups``, and as many exact groups or more, since a pass that
    verifies finishes at least one; the rest are the crossbar's as there, from a later state. Approximate below 15,
    where every group is exact.
    """

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        draw: Draw,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Predict a frame's groups in ``seq_groups`` passes; see ``Predictor.decode_frame``."""
        return self._decode(hidden, embedding, 1, seq_groups, draw, randomness)


@dataclass(frozen=True)
class Noise:
    """What one pass draws with: ``tokens`` ``[B, G, V]`` and ``correction`` ``[B, V]`` are exponential, ``verdicts``
    ``[B, G]`` uniform. As many for every pass, so that a line's stream runs alike in every batch.
    """

    tokens: torch.Tensor
    correction: torch.Tensor
    verdicts: torch.Tensor

    @classmethod
    def make(cls, randomness: Randomness, going: Sequence[bool], heads: Weight, draw: Draw) -> Noise:
        """Draw for the lines that are ``going``; a line that is done draws nothing from its stream, nor does greedy."""
        groups, vocabulary = heads.shape[:2]
        exponential = torch.ones(len(going), groups + 1, vocabulary, device=heads.device)
        uniform = torch.zeros(len(going), groups, device=heads.device)
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
        return cls(exponential[:, 1:], exponential[:, 0], uniform)

    def of(self, start: int) -> Noise:
        """The noise of the groups behind ``start``."""
        return Noise(self.tokens[:, start:], self.correction, self.verdicts[:, start:])


def settle(
    exact: torch.Tensor, drafted: torch.Tensor, tokens: torch.Tensor, known: torch.Tensor, noise: Noise
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keep drafted tokens up to the first refusal, and correct that one.

    Args:
        exact: ``[B, G, V]``, what exact decoding draws from after the tokens before each group.
        drafted: ``[B, G, V]``, what ``tokens`` were drawn from.
        tokens: ``[B, G]``.
        known: ``[B, G]``, tokens that are exact already and not to be judged.
        noise: of these groups.

    Returns:
        The tokens with the correction in its place, and how many were kept, ``[B]``: those behind it are void.
    """
    rows, groups = torch.arange(len(tokens), device=tokens.device), tokens.shape[1]
    kept = (known | accept(exact, drafted, tokens, noise.verdicts)).long().cumprod(dim=1).sum(dim=1)
    place = kept.clamp(max=groups - 1)
    corrected = pick(residual(exact[rows, place], drafted[rows, place]), noise.correction)
    tokens = tokens.clone()
    tokens[rows, place] = torch.where(kept < groups, corrected, tokens[rows, place])
    return tokens, kept


def accept(
    exact: torch.Tensor, drafted: torch.Tensor, tokens: torch.Tensor, verdicts: torch.Tensor
) -> torch.Tensor:
    """Bool ``[B, G]``: true with probability min(1, exact / drafted) of each token; ``verdicts`` are uniform."""
    wanted, offered = (of.gather(-1, tokens[..., None])[..., 0] for of in (exact, drafted))
    return verdicts * offered < wanted


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

"""Lossless decoding of groups 1-15: the crossbar drafts, one causal pass verifies, a rule accepts or corrects.

The rule (``verdict.py``) is that of speculative sampling: the result has the distribution of SEQ_GROUPS=15, however
good the draft is; a poor draft only takes more passes. The first groups that a pass verifies have several candidates.
Each combination of candidates is a separate row of the pass, with the same drafts for the groups after them. So the
states after whichever is kept have been computed.

The pass that rejects a group has also computed the exact state of that group, and the next draft is made from it. So
every pass finishes at least one group, and a frame takes at most the 15 passes of exact decoding. One
sequential group is enough for this; more of them only make the passes shorter.

It was a setting of the product until it proved to save no time: docs/knob.md says why.

Limits: a pass over several positions may round differently from one over a single position, so bit-equality with exact
decoding is not guaranteed; greedy codes agree in float32 up to ties. Sampling consumes a line's random stream
differently: the same seed gives a different take from the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from qwen3_tts_morph.morph.decode.kv_cache import KeyValueCache
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.sampling import Randomness, TokenSamplings, distribution
from qwen3_tts_morph.morph.model.crossbar import crossbar
from qwen3_tts_morph.morph.model.tail import Tail
from qwen3_tts_morph.morph.model.weights.joined_weights import stack
from qwen3_tts_morph.morph.model.weights.linear import Weight

from .verdict import Noise, drafting, propose, settle

# For a pass's first groups. Passes per frame of the demo voice: 8.6 with one, 7.5 with eight for the first group,
# 7.4 with two for the second as well, 7.2 with four. A pass costs launches on a GPU, and time per row on a CPU.
CANDIDATES, CANDIDATES_ON_CPU = (8, 2), (1,)


@dataclass(frozen=True)
class Reached:
    """How far each line of a batch is within its frame: ``done`` groups are exact, at least ``start``.

    ``states`` ``[B, H]`` are what the last of them was sampled from, ``tokens`` ``[B]`` the samples.
    """

    start: int
    done: tuple[int, ...]
    states: torch.Tensor
    tokens: torch.Tensor


Drafter: TypeAlias = Callable[[Reached], torch.Tensor]
"""Returns logits ``[B, G - start, V]`` of the groups after ``start``; those that a line has done are not read."""


def crossbar_drafter(heads: Weight) -> Drafter:
    """Draft by the crossbar with ``heads`` ``[G, V, H]``, the checkpoint's own or others trained for it."""

    def draft(reached: Reached) -> torch.Tensor:
        return crossbar(heads[reached.start :], reached.states)

    return draft


def tails_drafter(heads: Weight, tails: Mapping[int, Tail]) -> Drafter:
    """Draft by ``tails``, each for lines with that many exact groups, and by the stock crossbar without one."""
    stock = crossbar_drafter(heads)

    def draft(reached: Reached) -> torch.Tensor:
        if reached.start in tails and set(reached.done) == {reached.start}:  # always so for one line
            trained = tails[reached.start].logits(heads, reached.states, reached.tokens)
            return trained.to(reached.states.dtype)
        logits = stock(reached)
        for groups, tail in tails.items():
            rows = [row for row, done in enumerate(reached.done) if done == groups]
            if rows:
                trained = tail.logits(heads, reached.states[rows], reached.tokens[rows])
                logits[rows, groups - reached.start :] = trained.to(logits.dtype)
        return logits

    return draft


@dataclass
class Tally:
    """The frames of batches decoded so far, and their passes: a batch runs until its last line is done."""

    frames: int = 0
    passes: int = 0

    def add(self, passes: int) -> None:
        """Count a batch's frame."""
        self.frames += 1
        self.passes += passes

    @property
    def mean_passes(self) -> float:
        """Mean passes per frame of a batch."""
        return self.passes / max(1, self.frames)


class RewindingCache(KeyValueCache):
    """A cache that forgets what a rejected draft wrote."""

    def crop(self, length: int) -> None:
        """Forget all positions from ``length`` on."""
        self.keys = [None if keys is None else keys[:, :, :length] for keys in self.keys]
        self.values = [None if values is None else values[:, :, :length] for values in self.values]

    def take(self, rows: torch.Tensor) -> None:
        """Keep these rows (int64 ``[N]``) of the batch; a row listed twice is duplicated."""
        self.keys = [None if keys is None else keys[rows] for keys in self.keys]
        self.values = [None if values is None else values[rows] for values in self.values]


class LosslessPredictor(Predictor):
    """A ``Predictor`` whose frames are distributed as with 15 sequential groups, whatever ``seq_groups`` is.

    Args:
        code_predictor: upstream's.
        draft: makes the drafts; None is the crossbar with the tails, or with the checkpoint's own heads without one.
        tails: as ``Predictor``'s.
        candidates: how many are tried for the first group of every pass, the second, ...; None chooses for the device.

    ``tally`` counts its passes.
    """

    def __init__(
        self,
        code_predictor: Any,
        draft: Drafter | None = None,
        tails: Mapping[int, Tail] | None = None,
        candidates: Sequence[int] | None = None,
    ):
        super().__init__(code_predictor, tails)
        self.tables = stack(code_predictor.model.codec_embedding)  # [G, V, H_talker]
        self.draft = draft or tails_drafter(self.heads, self.tails)
        if candidates is None:
            candidates = CANDIDATES_ON_CPU if self.heads.device.type == "cpu" else CANDIDATES
        self.candidates = [min(count, self.heads.shape[1]) for count in candidates]
        self.tally = Tally()

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        sampling: Any,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Predict a frame's groups; see ``Predictor.decode_frame``.

        ``seq_groups`` groups run sequentially before the first draft. A line that is done samples nothing more, so its
        random stream does not depend on the other lines of the batch.
        """
        return self._decode(hidden, embedding, seq_groups, len(self.heads), sampling, randomness)

    def _decode(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        max_passes: int,
        sampling: TokenSamplings,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Decode a frame in at most ``max_passes``: groups that are not exact by then keep the last draft."""
        cache, groups = RewindingCache(len(self.module.model.layers)), len(self.heads)
        first, states = self._decode_sequential(hidden, embedding, seq_groups, sampling, randomness, cache)
        codes = torch.nn.functional.pad(first, (0, groups - seq_groups))
        done, passes = [seq_groups] * len(codes), seq_groups
        rows = lines = torch.arange(len(codes), device=codes.device)
        while (start := min(done)) < groups:
            known = torch.tensor(done, device=codes.device)[:, None]
            last = codes.gather(1, known - 1)[:, 0]
            draft = self.draft(Reached(start, tuple(done), states, last))
            drafted = self.broken.apply(lambda finite: drafting(finite, sampling), draft)
            going = [length < groups for length in done]
            noise = Noise.make(randomness, going, self.heads, self.candidates, sampling).of(start)
            is_known = torch.arange(start, groups, device=codes.device) < known
            tries = propose(codes[:, start:], drafted, is_known, noise)
            if passes == max_passes:
                codes[:, start:] = tries[:, 0]
                break
            passed = self._pass(codes[:, start - 1], tries, start, cache, rows)
            logits = crossbar(self.heads[start:], passed).unflatten(0, (len(codes), -1))
            exact = self.broken.apply(lambda finite: distribution(finite, sampling), logits)
            chosen = settle(exact, drafted, tries, is_known, noise)
            codes[:, start:], rows = chosen.tokens, lines * tries.shape[1] + chosen.row
            states = passed[rows, chosen.kept.clamp(max=groups - start - 1)]
            done = [min(length + 1, groups) for length in (start + chosen.kept).tolist()]
            passes += 1
        self.tally.add(passes)
        return codes

    def _pass(
        self, last: torch.Tensor, tries: torch.Tensor, start: int, cache: RewindingCache, rows: torch.Tensor
    ) -> torch.Tensor:
        """Return the states ``[B K, G, H]`` that exact decoding samples the groups of ``tries`` ``[B, K, G]`` from.

        ``last`` ``[B]`` is the group before them; ``rows`` ``[B]`` are the lines' rows of the cache. All lines run the
        same positions; one that is further along computes some of its exact groups again.
        """
        count, length = tries.shape[1:]
        cache.crop(start + 1)  # the pair of the prefill, and all tokens but the last of those done
        cache.take(rows.repeat_interleave(count))
        inputs = torch.cat((last[:, None, None].expand(-1, count, 1), tries[..., :-1]), dim=2)
        groups = torch.arange(start - 1, start - 1 + length, device=tries.device)
        return self._run(self.tables[groups, inputs.flatten(0, 1)], start + 1, cache)

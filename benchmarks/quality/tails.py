"""Other ways to draw the groups behind the sequential ones: what a crossbar with more sense, or more passes, could do.

Each is a ``Predictor`` for ``eager.decode_lines``; ``TAILS`` names them. The passes that each takes are in its first
line: S is SEQ_GROUPS. At S = 15 all are exact decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from qwen3_tts_morph.morph.cache import KeyValueCache
from qwen3_tts_morph.morph.model import Model
from qwen3_tts_morph.morph.options import Draw
from qwen3_tts_morph.morph.predictor import Predictor, crossbar
from qwen3_tts_morph.morph.sampling import Randomness, distribution, draw_tokens
from qwen3_tts_morph.morph.speculative import BoundedPredictor, SpeculativePredictor

ChangeDraw: TypeAlias = Callable[[Draw], Draw]


def unchanged(draw: Draw) -> Draw:
    return draw


def greedy(draw: Draw) -> Draw:
    """The likeliest token."""
    return replace(draw, do_sample=False)


def cooler(factor: float) -> ChangeDraw:
    """The temperature times ``factor``."""
    return lambda draw: replace(draw, temperature=draw.temperature * factor)


class TailPredictor(Predictor):
    """S passes: the crossbar, with a draw of its own for the tail (a lower temperature, or greedy)."""

    def __init__(self, code_predictor: Any, change: ChangeDraw = unchanged):
        super().__init__(code_predictor)
        self.change = change

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        draw: Draw,
        randomness: Randomness,
    ) -> torch.Tensor:
        """See ``Predictor.decode_frame``."""
        cache = self._new_cache()
        codes, state = self._decode_sequential(hidden, embedding, seq_groups, draw, randomness, cache)
        if seq_groups == len(self.heads):
            return codes
        return self.decode_tail(codes, state, cache, draw, randomness)

    def decode_tail(
        self,
        codes: torch.Tensor,
        state: torch.Tensor,
        cache: KeyValueCache,
        draw: Draw,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Complete ``codes`` ``[B, S]`` to ``[B, 15]``; ``state`` ``[B, H]`` is what the last was drawn from."""
        logits = crossbar(self.heads[codes.shape[1] :], state)
        return torch.cat((codes, draw_tokens(logits, self.change(draw), randomness)), dim=1)

    def pass_over(self, codes: torch.Tensor, first: int, cache: KeyValueCache) -> torch.Tensor:
        """One causal pass over groups ``first`` .. of ``codes``: the states that the groups after each come from."""
        tables = self.module.model.codec_embedding
        inputs = [tables[group](codes[:, group]) for group in range(first, codes.shape[1])]
        return self._run(torch.stack(inputs, dim=1), first + 2, cache)


class TwoHalves(TailPredictor):
    """S + 1 passes: the crossbar for half of the tail, one pass over what it drew, the crossbar for the rest."""

    def decode_tail(
        self,
        codes: torch.Tensor,
        state: torch.Tensor,
        cache: KeyValueCache,
        draw: Draw,
        randomness: Randomness,
    ) -> torch.Tensor:
        sequential, groups = codes.shape[1], len(self.heads)
        half = sequential + (groups - sequential + 1) // 2
        first = draw_tokens(crossbar(self.heads[sequential:half], state), self.change(draw), randomness)
        codes = torch.cat((codes, first), dim=1)
        if half == groups:
            return codes
        state = self.pass_over(codes, sequential - 1, cache)[:, -1]
        rest = draw_tokens(crossbar(self.heads[half:], state), self.change(draw), randomness)
        return torch.cat((codes, rest), dim=1)


class SecondPass(TailPredictor):
    """S + 1 passes: the crossbar drafts the tail, one causal pass over the draft, all of the tail is drawn again.

    ``change`` is the draft's draw; what stays is drawn as asked for.
    """

    def decode_tail(
        self,
        codes: torch.Tensor,
        state: torch.Tensor,
        cache: KeyValueCache,
        draw: Draw,
        randomness: Randomness,
    ) -> torch.Tensor:
        sequential = codes.shape[1]
        draft = super().decode_tail(codes, state, cache, draw, randomness)
        states = self.pass_over(draft[:, :-1], sequential - 1, cache)
        logits = crossbar(self.heads[sequential:], states)
        return torch.cat((codes, draw_tokens(logits, draw, randomness)), dim=1)


def concentration(probabilities: torch.Tensor) -> torch.Tensor:
    """How sure a draft is: the probability that two draws agree, ``[..., V]`` -> ``[...]``."""
    return probabilities.square().sum(dim=-1)


@dataclass(frozen=True)
class Calibration:
    """Expected acceptance of group g behind S exact ones: ``offset[S, g] + slope[S, g] * concentration``.

    Acceptance is 1 minus the total variation distance between the crossbar's distribution and the exact one: the
    share of its draws that the rule of ``morph/speculative.py`` would keep, had all before them been kept.
    """

    offset: torch.Tensor
    slope: torch.Tensor

    def share(self, seq_groups: int, drafted: torch.Tensor) -> torch.Tensor:
        """Of a frame's 15 groups the share expected to be accepted, ``[B]``; sequential ones are, in full.

        ``drafted`` ``[B, 15 - S, V]``: the crossbar's distributions behind ``seq_groups`` groups.
        """
        tail = slice(seq_groups, None)
        line = self.offset[seq_groups, tail] + self.slope[seq_groups, tail] * concentration(drafted)
        return (seq_groups + line.clamp(0, 1).sum(dim=-1)) / len(self.offset)


@torch.inference_mode()
def calibrate(
    model: Model, hidden: torch.Tensor, codes: torch.Tensor, draw: Draw
) -> tuple[Calibration, torch.Tensor]:
    """Fit a ``Calibration`` by least squares to exact frames of the checkpoint.

    Args:
        model: the checkpoint.
        hidden: ``[N, 1, H_talker]``, the talker's state before each frame (``observe`` of ``eager.decode_lines``).
        codes: ``[N, 16]``, the frames, decoded with 15 groups.
        draw: the sub-talker's.

    Returns:
        The calibration, and what it expects of these frames at each SEQ_GROUPS 1..14, ``[N, 14]``.
    """
    predictor, tables = Predictor(model.talker.code_predictor), model.code_tables()
    heads, groups = predictor.heads, len(predictor.heads)
    first = model.talker.get_input_embeddings()(codes[:, :1])
    inputs = torch.cat((first, tables[torch.arange(groups - 1), codes[:, 1:-1]]), dim=1)
    states = predictor.teacher_force(hidden, inputs)
    exact = distribution(crossbar(heads, states), draw)
    offset, slope = torch.zeros(2, groups, groups, device=codes.device)
    calibration, shares = Calibration(offset, slope), []
    for seq_groups in range(1, groups):
        drafted = distribution(crossbar(heads[seq_groups:], states[:, seq_groups - 1]), draw)
        accepted = 1 - 0.5 * (drafted - exact[:, seq_groups:]).abs().sum(dim=-1)
        sure = concentration(drafted)
        spread = sure - sure.mean(dim=0)
        steep = (spread * accepted).sum(dim=0) / spread.square().sum(dim=0).clamp(min=1e-9)
        slope[seq_groups, seq_groups:] = steep
        offset[seq_groups, seq_groups:] = accepted.mean(dim=0) - steep * sure.mean(dim=0)
        shares.append(calibration.share(seq_groups, drafted))
    return calibration, torch.stack(shares, dim=1)


def choose_target(shares: torch.Tensor, seq_groups: float) -> float:
    """The target at which frames with these expected ``shares`` ``[N, 14]`` take ``seq_groups`` passes on average."""
    targets = torch.linspace(0, 1, 201)
    taken = [
        float((shares < target).int().cumprod(dim=1).sum(dim=1).float().mean()) + 1 for target in targets
    ]
    return float(targets[(torch.tensor(taken) - seq_groups).abs().argmin()])


class AdaptivePredictor(Predictor):
    """As many passes as the frame needs: sequential groups until the crossbar is expected to do well enough.

    Args:
        code_predictor: upstream's.
        calibration: of this checkpoint and this draw.
        target: 0..1, the expected share of a frame's groups that exact decoding would accept (``Calibration``).

    A batch takes the passes of its neediest line: so a line's codes depend on its batch mates. ``seq_groups`` is the
    least number of passes. ``passes`` has what each frame of the batch took.
    """

    def __init__(self, code_predictor: Any, calibration: Calibration, target: float):
        super().__init__(code_predictor)
        if not 0 <= target <= 1:
            raise ValueError(f"target is {target}: choose 0 to 1")
        self.calibration, self.target = calibration, target
        self.passes: list[int] = []

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        draw: Draw,
        randomness: Randomness,
    ) -> torch.Tensor:
        """See ``Predictor.decode_frame``."""
        cache, groups = self._new_cache(), len(self.heads)
        tables = self.module.model.codec_embedding
        codes, state = self._decode_sequential(hidden, embedding, seq_groups, draw, randomness, cache)
        while (done := codes.shape[1]) < groups:
            logits = crossbar(self.heads[done:], state)
            if bool((self.calibration.share(done, distribution(logits, draw)) >= self.target).all()):
                codes = torch.cat((codes, draw_tokens(logits, draw, randomness)), dim=1)
                break
            state = self._run(tables[done - 1](codes[:, -1:]), done + 1, cache)[:, -1]
            token = draw_tokens(state @ self.heads[done].T, draw, randomness)
            codes = torch.cat((codes, token[:, None]), dim=1)
        self.passes.append(done)
        return codes


TAILS: Mapping[str, tuple[str, Callable[[Any], Predictor]]] = {
    "tail-cooler": (
        "the crossbar, its tail drawn at half the temperature",
        lambda module: TailPredictor(module, cooler(0.5)),
    ),
    "tail-greedy": ("the crossbar, its tail greedy", lambda module: TailPredictor(module, greedy)),
    "two-halves": ("the crossbar for half of the tail, a pass over it, the crossbar for the rest", TwoHalves),
    "second-pass": ("the crossbar's tail, then one pass over it from which it is drawn anew", SecondPass),
    "second-pass-greedy-draft": (
        "the crossbar's tail, greedy, then one pass over it from which it is drawn anew",
        lambda module: SecondPass(module, greedy),
    ),
    "bounded": ("lossless, broken off after SEQ_GROUPS passes of the predictor", BoundedPredictor),
    "lossless": ("the crossbar drafts, passes verify: distributed as SEQ_GROUPS=15", SpeculativePredictor),
}
"""From a name to what it is, and what makes the predictor of a ``code_predictor``."""

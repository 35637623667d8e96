"""Adaptive SEQ_GROUPS: every frame takes as many sequential passes as its crossbar seems to need.

``calibrate`` fits on exact frames how the crossbar's confidence predicts its acceptance, ``choose_target`` converts a
mean number of passes to a target, and ``AdaptivePredictor`` decodes with both. ``calibrating.py`` runs this for a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.sampling import Randomness, distribution, sample_tokens
from qwen3_tts_morph.morph.model.crossbar import crossbar
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.model.weights.linear import linear
from qwen3_tts_morph.morph.options import TokenSampling
from qwen3_tts_morph.morph.study.sweep import embed_inputs

from .lossless import Tally


def concentration(probabilities: torch.Tensor) -> torch.Tensor:
    """Confidence of a draft: the probability that two samples are equal, ``[..., V]`` -> ``[...]``."""
    return probabilities.square().sum(dim=-1)


@dataclass(frozen=True)
class Calibration:
    """Expected acceptance of group g after S exact groups: ``offset[S, g] + slope[S, g] * concentration``.

    Acceptance is 1 minus the total variation distance between the crossbar's distribution and the exact one: the
    share of the crossbar's samples that lossless decoding would keep if it had kept all groups before.
    """

    offset: torch.Tensor
    slope: torch.Tensor

    def share(self, seq_groups: int, drafted: torch.Tensor) -> torch.Tensor:
        """Return the share of a frame's 15 groups expected to be accepted, ``[B]``; sequential groups count as 1.

        ``drafted`` ``[B, 15 - S, V]``: the crossbar's distributions after ``seq_groups`` groups.
        """
        tail = slice(seq_groups, None)
        line = self.offset[seq_groups, tail] + self.slope[seq_groups, tail] * concentration(drafted)
        return (seq_groups + line.clamp(0, 1).sum(dim=-1)) / len(self.offset)


@torch.inference_mode()
def calibrate(
    model: Model, hidden: torch.Tensor, codes: torch.Tensor, sampling: TokenSampling
) -> tuple[Calibration, torch.Tensor]:
    """Fit a ``Calibration`` by least squares to exact frames of the checkpoint.

    Args:
        model: the checkpoint.
        hidden: ``[N, 1, H_talker]``, the talker's state before each frame (``observe`` of ``eager.Experiment``).
        codes: ``[N, 16]``, the frames, decoded with 15 groups.
        sampling: of the sub-talker.

    Returns:
        The calibration, and the shares it expects of these frames at each SEQ_GROUPS 1..14, ``[N, 14]``.
    """
    predictor = Predictor(model.talker.code_predictor)
    heads, groups = predictor.heads, len(predictor.heads)
    states = predictor.teacher_force(hidden, embed_inputs(model, codes))
    exact = distribution(crossbar(heads, states), sampling)
    offset, slope = torch.zeros(2, groups, groups, device=codes.device)
    calibration, shares = Calibration(offset, slope), []
    for seq_groups in range(1, groups):
        drafted = distribution(crossbar(heads[seq_groups:], states[:, seq_groups - 1]), sampling)
        accepted = 1 - 0.5 * (drafted - exact[:, seq_groups:]).abs().sum(dim=-1)
        sure = concentration(drafted)
        spread = sure - sure.mean(dim=0)
        steep = (spread * accepted).sum(dim=0) / spread.square().sum(dim=0).clamp(min=1e-9)
        slope[seq_groups, seq_groups:] = steep
        offset[seq_groups, seq_groups:] = accepted.mean(dim=0) - steep * sure.mean(dim=0)
        shares.append(calibration.share(seq_groups, drafted))
    return calibration, torch.stack(shares, dim=1)


def choose_target(shares: torch.Tensor, seq_groups: float) -> float:
    """Return the target at which frames with these ``shares`` ``[N, 14]`` take ``seq_groups`` passes on average."""
    targets = torch.linspace(0, 1, 1001)
    taken = [
        float((shares < target).int().cumprod(dim=1).sum(dim=1).float().mean()) + 1 for target in targets
    ]
    return float(targets[(torch.tensor(taken) - seq_groups).abs().argmin()])


class AdaptivePredictor(Predictor):
    """Sequential passes until the crossbar's expected acceptance for the rest of the frame is high enough.

    Args:
        code_predictor: upstream's module.
        calibration: fitted to this checkpoint and this sampling.
        target: 0..1, the expected share of a frame's groups that exact decoding would accept (``Calibration``).

    Each line of a batch stops on its own, and its samples do not depend on the other lines. But a batch runs passes
    until its last line has stopped: ``tally`` counts these as passes, and they determine the time.
    """

    def __init__(self, code_predictor: Any, calibration: Calibration, target: float):
        super().__init__(code_predictor)
        if not 0 <= target <= 1:
            raise ValueError(f"target is {target}: choose 0 to 1")
        self.calibration, self.target = calibration, target
        self.tally = Tally()

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        sampling: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """See ``Predictor.decode_frame``. At ``seq_groups`` 15 it is exact; below that only the target decides."""
        cache, groups = self._new_cache(), len(self.heads)
        tables = self.module.model.codec_embedding
        least = groups if seq_groups == groups else 1
        codes, state = self._decode_sequential(hidden, embedding, least, sampling, randomness, cache)
        codes = torch.nn.functional.pad(codes, (0, groups - least))
        going, passes = list(range(len(codes))), [least] * len(codes)
        for done in range(least, groups):
            logits = crossbar(self.heads[done:], state)
            enough = (self.calibration.share(done, distribution(logits, sampling)) >= self.target).tolist()
            if stopping := [row for row in going if enough[row]]:
                codes[stopping, done:] = _sample_rows(logits, stopping, sampling, randomness)
            going = [row for row in going if not enough[row]]
            if not going:
                break
            state = self._run(tables[done - 1](codes[:, done - 1 : done]), done + 1, cache)[:, -1]
            codes[going, done] = _sample_rows(linear(state, self.heads[done]), going, sampling, randomness)
            for row in going:
                passes[row] += 1
        self.tally.add(max(passes))
        return codes


def _sample_rows(
    logits: torch.Tensor, rows: list[int], sampling: TokenSampling, randomness: Randomness
) -> torch.Tensor:
    """Sample for some lines of a batch; the random streams of the others do not advance."""
    own = [randomness[row] for row in rows] if isinstance(randomness, Sequence) else randomness
    return sample_tokens(logits[rows], sampling, own)

"""What the lab compares: decoding strategies, post-processing, and controls.

A strategy decodes lines from prompts with the eager engine, by its own predictor or in another way altogether. All
strategies get the same lines, voices and seeds; ``registry.py`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from qwen3_tts_morph.morph.decode.decoded import Decoded
from qwen3_tts_morph.morph.decode.eager import Experiment, decode
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.decode.request import LineRequest
from qwen3_tts_morph.morph.decode.sampling import Randomness
from qwen3_tts_morph.morph.model.crossbar import crossbar
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.model.weights.joined_weights import view_heads
from qwen3_tts_morph.morph.options import (
    PREDICTED_GROUPS,
    GenerateOptions,
    Sampling,
    TokenSampling,
    check_seq_groups,
)
from qwen3_tts_morph.morph.study.sweep import sampled_distribution
from qwen3_tts_morph.morph.voice.prompt import Prompt

from .lossless import LosslessPredictor

TAIL_FROM = (
    5  # index of the first spoiled group, of the predictor's 0-14: the controls spoil the last ten groups
)

OnFrame: TypeAlias = "Callable[[int], None] | None"
Decode: TypeAlias = Callable[
    [Sequence[Prompt], Sequence[Guard], Sampling, Sequence[int], OnFrame], list[Decoded]
]
"""Decodes a batch of lines: prompts, guards, sampling, one seed per line, and a callback for every frame."""

Distributions: TypeAlias = Callable[[Model, torch.Tensor, torch.Tensor, int, TokenSampling], torch.Tensor]
"""A strategy's probabilities ``[N, 15, V]`` for groups 1-15 of finished frames, each after the exact codes before it.
Arguments: the model, the exact states ``[N, 15, H]`` (see ``Predictor.teacher_force``), the frames' codes ``[N, 16]``,
SEQ_GROUPS and the sub-talker's sampling."""


@dataclass(frozen=True)
class Strategy:
    """One way from prompts to sound.

    Args:
        name: as on the command line.
        about: one sentence for the report.
        start: returns a ``Decode`` for a loaded model and SEQ_GROUPS; called once for all batches of a condition.
        groups: the only SEQ_GROUPS it supports; None: all.
        heads: "stock", or the name of other heads that predict the tail.
        distributions: for the distance from exact; None if it has none, or is exact by design.
        finish: post-processes the waveform ``[T]`` at a sample rate.
        spoil: makes it a control: it decodes nothing, but changes the exact line's codes ``[T, 16]``. Arguments: the
            codes, the size of the codebook and the line's seed.
        product: whether the product's own engine decodes this way and is timed for it.
        counts_passes: whether its passes vary from frame to frame, and its predictor counts them in ``tally``.
        calibrated: whether ``calibrating.py`` must replace its ``start`` before it can decode.
    """

    name: str
    about: str
    start: Callable[[Model, int], Decode]
    groups: tuple[int, ...] | None = None
    heads: str = "stock"
    distributions: Distributions | None = None
    finish: Callable[[np.ndarray, int], np.ndarray] | None = None
    spoil: Callable[[torch.Tensor, int, int], torch.Tensor] | None = None
    product: bool = False
    counts_passes: bool = False
    calibrated: bool = False


@dataclass(frozen=True)
class Condition:
    """A strategy at one SEQ_GROUPS: a row of the table."""

    strategy: Strategy
    seq_groups: int

    @property
    def key(self) -> str:
        """Name of its folders, also shown in progress bars."""
        return f"{self.strategy.name}-{self.seq_groups:02}"

    @property
    def is_exact(self) -> bool:
        """Whether this is the condition that all others are compared with."""
        return self.strategy.name == "crossbar" and self.seq_groups == PREDICTED_GROUPS


@dataclass(frozen=True)
class PredictorDecode:
    """A ``Decode`` by the eager engine's loop with one predictor, whose passes can be read afterwards."""

    model: Model
    seq_groups: int
    predictor: Predictor

    def __call__(
        self,
        prompts: Sequence[Prompt],
        guards: Sequence[Guard],
        sampling: Sampling,
        seeds: Sequence[int],
        on_frame: OnFrame,
    ) -> list[Decoded]:
        """See ``Decode``."""
        lines = [LineRequest(*line) for line in zip(prompts, guards, seeds, strict=True)]
        options = GenerateOptions(self.seq_groups, sampling, batch_size=max(1, len(lines)))
        return decode(self.model, lines, options, on_frame, Experiment(self.predictor))


def by_predictor(make: Callable[[Model, int], Predictor]) -> Callable[[Model, int], PredictorDecode]:
    """Decode with the eager engine's loop and the predictor that ``make`` returns for a model and SEQ_GROUPS."""
    return lambda model, seq_groups: PredictorDecode(model, seq_groups, make(model, seq_groups))


def own_predictor(model: Model, seq_groups: int) -> Predictor:
    """Return the product's predictor over the stock heads, for any SEQ_GROUPS."""
    return Predictor(model.talker.code_predictor)


def trained_predictor(model: Model, seq_groups: int) -> Predictor:
    """Return the product's predictor over the checkpoint's trained tail.

    Raises:
        ValueError: the checkpoint has no tail for this SEQ_GROUPS.
    """
    tails = model.tails()
    if seq_groups not in tails:
        raise ValueError(
            f"the checkpoint has no trained tail for SEQ_GROUPS {seq_groups} (it has them for "
            f"{sorted(tails) or 'none'}): leave the strategy out, or run python -m lab.tails"
        )
    return Predictor(model.talker.code_predictor, tails)


def lossless_trained(model: Model, seq_groups: int) -> LosslessPredictor:
    """Return the lossless predictor, drafting with the trained tail that fits a line's exact groups.

    Raises:
        ValueError: the checkpoint has no trained tail.
    """
    tails = model.tails()
    if not tails:
        raise ValueError(
            "the checkpoint has no trained tail to draft with: leave lossless-trained out, or run "
            "python -m lab.tails"
        )
    return LosslessPredictor(model.talker.code_predictor, tails=tails)


def from_states(
    model: Model, states: torch.Tensor, sources: Sequence[int], sampling: TokenSampling
) -> torch.Tensor:
    """Return probabilities ``[N, G, V]``: the stock heads predict group g+1 from the exact state ``sources[g]``."""
    heads = view_heads(model.talker.code_predictor.lm_head)[: len(sources)]
    return sampled_distribution(crossbar(heads, states[:, list(sources)]), sampling)


def exact_distributions(
    model: Model, states: torch.Tensor, codes: torch.Tensor, seq_groups: int, sampling: TokenSampling
) -> torch.Tensor:
    """Predict every group from its own state; ``seq_groups`` is ignored."""
    return from_states(model, states, range(PREDICTED_GROUPS), sampling)


def crossbar_distributions(
    model: Model, states: torch.Tensor, codes: torch.Tensor, seq_groups: int, sampling: TokenSampling
) -> torch.Tensor:
    """The product's distributions: the last sequential group's state also predicts the tail."""
    sources = [min(group, seq_groups - 1) for group in range(PREDICTED_GROUPS)]
    return from_states(model, states, sources, sampling)


def trained_distributions(
    model: Model, states: torch.Tensor, codes: torch.Tensor, seq_groups: int, sampling: TokenSampling
) -> torch.Tensor:
    """The product's distributions with a trained tail, which also reads the last sequential group's code."""
    predictor = trained_predictor(model, seq_groups)
    logits = predictor.crossbar_logits(seq_groups, states[:, seq_groups - 1], codes[:, seq_groups])
    first = from_states(model, states, range(seq_groups), sampling)
    return torch.cat((first, sampled_distribution(logits, sampling)), dim=1)


def zero_tail(codes: torch.Tensor, codebook: int, seed: int) -> torch.Tensor:
    """Set the last ten groups of ``[T, 16]`` to code 0."""
    spoiled = codes.clone()
    spoiled[:, 1 + TAIL_FROM :] = 0
    return spoiled


def random_tail(codes: torch.Tensor, codebook: int, seed: int) -> torch.Tensor:
    """Replace the last ten groups of ``[T, 16]`` by uniformly random codes."""
    spoiled = codes.clone()
    tail = spoiled[:, 1 + TAIL_FROM :]
    stream = torch.Generator().manual_seed(seed % 2**63)
    tail.copy_(torch.randint(codebook, tail.shape, generator=stream))
    return spoiled


class SpoiledTail(Predictor):
    """Spoils the last ten groups during decoding, so that the talker continues from spoiled frames."""

    def __init__(self, model: Model, random: bool):
        super().__init__(model.talker.code_predictor)
        self.random = random

    def decode_frame(
        self,
        hidden: torch.Tensor,
        embedding: torch.Tensor,
        seq_groups: int,
        sampling: TokenSampling,
        randomness: Randomness,
    ) -> torch.Tensor:
        """Decode as ``Predictor.decode_frame`` at SEQ_GROUPS=5, with the tail zeroed or uniformly random."""
        codes = super().decode_frame(hidden, embedding, TAIL_FROM, sampling, randomness)
        tail = codes[:, TAIL_FROM:]
        if not self.random:
            tail.zero_()
            return codes
        codebook = self.heads.shape[1]
        streams = randomness if isinstance(randomness, Sequence) else [randomness]
        shares = tail.tensor_split(len(streams))
        for share, stream in zip(shares, streams, strict=True):
            share.copy_(torch.randint(codebook, share.shape, generator=stream, device=tail.device))
        return codes


def not_calibrated(model: Model, seq_groups: int) -> Decode:
    """Raise ValueError: an adaptive strategy needs calibration before it can decode."""
    raise ValueError("this strategy is calibrated on exact lines first: see calibrating.py")


def no_decoding(model: Model, seq_groups: int) -> Decode:
    """Raise ValueError: a control that spoils exact codes decodes nothing."""
    raise ValueError("this control is made from the exact line's codes: it decodes nothing")


def select(names: Sequence[str], seq_groups: Sequence[int], known: dict[str, Strategy]) -> list[Condition]:
    """Return the conditions named by "NAME" (at all its SEQ_GROUPS) and "NAME:SEQ_GROUPS", each once.

    Raises:
        ValueError: an unknown name, or a SEQ_GROUPS that the strategy does not support.
    """
    chosen: dict[str, Condition] = {}
    for name in names:
        word, _, number = name.partition(":")
        if word not in known:
            raise ValueError(f"strategy {word!r} is unknown: choose one of {', '.join(known)}")
        strategy = known[word]
        if number and not number.isdecimal():
            raise ValueError(f"strategy {name!r}: write NAME or NAME:SEQ_GROUPS, e.g. crossbar:5")
        wanted = [int(number)] if number else strategy.groups or seq_groups
        for groups in wanted:
            if strategy.groups and groups not in strategy.groups:
                raise ValueError(
                    f"strategy {word!r} supports only SEQ_GROUPS {strategy.groups}, not {groups}"
                )
            condition = Condition(strategy, check_seq_groups(groups))
            chosen.setdefault(condition.key, condition)
    return list(chosen.values())

"""The compared conditions: ways to decode, each at some SEQ_GROUPS, and controls that are known to be worse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS, GenerateOptions, Sampling, check_seq_groups

TAIL_FROM = 5  # of the predictor's groups 0-14: the controls spoil the last ten


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


@dataclass(frozen=True)
class Strategy:
    """One way from prompts to codes.

    Args:
        name: as on the command line.
        about: one sentence for the report.
        tail: that of the options: "stock", or "auto" for the checkpoint's trained one, which it must have.
        groups: the only SEQ_GROUPS it supports; None: all.
        spoil: makes it a control: it decodes nothing, but changes the exact line's codes ``[T, 16]``. Arguments: the
            codes, the size of the codebook and the line's seed.
    """

    name: str
    about: str
    tail: str = "stock"
    groups: tuple[int, ...] | None = None
    spoil: Callable[[torch.Tensor, int, int], torch.Tensor] | None = None

    def options(self, model: Model, seq_groups: int, sampling: Sampling, batch: int) -> GenerateOptions:
        """Return the product's options for this strategy.

        Raises:
            ValueError: the checkpoint has no trained tail for this SEQ_GROUPS.
        """
        tails = model.tails() if self.tail == "auto" else {seq_groups}
        if seq_groups not in tails:
            raise ValueError(
                f"the checkpoint has no trained tail for SEQ_GROUPS {seq_groups} (it has them for "
                f"{sorted(tails) or 'none'}): leave the strategy {self.name} out, or run python -m lab.tails"
            )
        return GenerateOptions(seq_groups, sampling, batch, tail=self.tail)


STRATEGIES = {
    one.name: one
    for one in (
        Strategy("crossbar", "SEQ_GROUPS groups one after another, the rest by one GEMM with the stock heads"),
        Strategy("trained", "the same with the checkpoint's trained tail instead of the stock heads", "auto"),
        Strategy(
            "tail-zeroed",
            "control: the exact line with the last ten groups set to code 0 before the codec",
            groups=(TAIL_FROM,),
            spoil=zero_tail,
        ),
        Strategy(
            "tail-random",
            "control: the exact line with the last ten groups replaced by random codes before the codec",
            groups=(TAIL_FROM,),
            spoil=random_tail,
        ),
    )
}
CONTROLS = ("tail-zeroed", "tail-random")
EXACT = "crossbar:15"


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


def select(names: Sequence[str], seq_groups: Sequence[int]) -> list[Condition]:
    """Return the conditions named by "NAME" (at all its SEQ_GROUPS) and "NAME:SEQ_GROUPS", each once.

    Raises:
        ValueError: an unknown name, or a SEQ_GROUPS that the strategy does not support.
    """
    chosen: dict[str, Condition] = {}
    for name in names:
        word, _, number = name.partition(":")
        if word not in STRATEGIES:
            raise ValueError(f"strategy {word!r} is unknown: choose one of {', '.join(STRATEGIES)}")
        strategy = STRATEGIES[word]
        if number and not number.isdecimal():
            raise ValueError(f"strategy {name!r}: write NAME or NAME:SEQ_GROUPS, e.g. crossbar:5")
        wanted = [int(number)] if number else strategy.groups or seq_groups
        for groups in wanted:
            if strategy.groups and groups not in strategy.groups:
                raise ValueError(f"strategy {word!r} supports only SEQ_GROUPS {strategy.groups}, not {groups}")
            condition = Condition(strategy, check_seq_groups(groups))
            chosen.setdefault(condition.key, condition)
    return list(chosen.values())

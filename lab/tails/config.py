"""The options in ``lab/tails/config.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .variants import parse_variant

DEFAULT = Path(__file__).with_name("config.json")


@dataclass(frozen=True)
class Config:
    """The options of the recording and the training.

    Args:
        seed: of voices, lines, samples and weights.
        lines: how many to speak, rotating through texts and voices.
        batch_size: lines spoken together.
        takes: samples of groups 1-15 per recorded frame: the spoken one, and others.
        held_out: every ``held_out``-th text is kept for evaluation.
        variant: see ``variants.py``.
        width: of the residual layers, in predictor widths.
        steps: updates of a tail.
        batch_frames: frames per update.
        learning_rate: of Adam; decays to 0 with a cosine.
        warmup_steps: updates until the learning rate reaches its maximum.
    """

    seed: int
    lines: int
    batch_size: int
    takes: int
    held_out: int
    variant: str
    width: float
    steps: int
    batch_frames: int
    learning_rate: float
    warmup_steps: int

    def __post_init__(self) -> None:
        parse_variant(self.variant)
        if min(self.lines, self.batch_size, self.takes, self.steps, self.batch_frames) < 1:
            raise ValueError("lines, batch_size, takes, steps and batch_frames must be at least 1")
        if self.held_out < 2:
            raise ValueError(f"held_out is {self.held_out}: every held_out-th text is kept, choose 2 or more")
        if not (self.width > 0 and self.learning_rate > 0 and self.warmup_steps >= 0):
            raise ValueError("width and learning_rate must be above 0, warmup_steps at least 0")


def load_config(path: Path = DEFAULT, **changes: Any) -> Config:
    """Read a config file; ``changes`` that are not None replace its values."""
    values = json.loads(path.read_text(encoding="utf-8"))
    try:
        config = Config(**values)
    except TypeError as error:
        raise ValueError(f"{path}: {error}; compare it with lab/tails/config.json") from error
    return replace(config, **{name: value for name, value in changes.items() if value is not None})

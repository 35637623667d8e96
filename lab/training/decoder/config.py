"""Options of the decoder's training, read from ``lab/training/configs/decoder.json``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..codec.config import SAMPLES_PER_FRAME, Adversarial, Losses, as_tuples
from ..values import read_values

DEFAULT = Path(__file__).resolve().parents[1] / "configs" / "decoder.json"


@dataclass(frozen=True)
class Windows:
    """What a step decodes.

    The decoder's slow layers run over ``frames`` frames, its fast ones over the last ``decoded`` of these, and losses
    hear the last ``judged`` samples: what comes before only warms the layers up, so that judged audio has the context
    that it has in a whole line.

    Args:
        count: windows per step.
        frames, decoded: 80 ms each.
        judged: samples.
        cold: share of the windows that begin where a stretch of speech begins. Their fast layers begin at any of their
            frames; if at the first, their first ``judged`` samples are judged.
        dropout: share of the windows that are decoded from their first n groups only, n uniform in 1..15.
    """

    count: int
    frames: int
    decoded: int
    judged: int
    cold: float
    dropout: float

    def __post_init__(self) -> None:
        if not 0 < self.judged <= self.decoded * SAMPLES_PER_FRAME <= self.frames * SAMPLES_PER_FRAME:
            raise ValueError(f"{self}: judged samples must be within the decoded frames, these within frames")
        if self.count < 1 or not (0 <= self.cold <= 1 and 0 <= self.dropout <= 1):
            raise ValueError(f"{self}: count must be at least 1, cold and dropout 0 to 1")


@dataclass(frozen=True)
class Training:
    """Steps and optimiser.

    Args:
        alone_steps: first steps, in which only the discriminators learn, if they are new.
        warmup_steps: steps after those over which the learning rate rises.
        final_rate: share of the learning rate that is left when it has decayed.
        average: decay of the moving average of the weights, which is exported.
    """

    seed: int
    alone_steps: int
    warmup_steps: int
    learning_rate: float
    final_rate: float
    weight_decay: float
    clip: float
    average: float
    log_every: int
    validate_every: int
    save_minutes: float

    def __post_init__(self) -> None:
        if min(self.warmup_steps, self.log_every, self.validate_every) < 1 or self.alone_steps < 0:
            raise ValueError(f"{self}: steps must be positive")


@dataclass(frozen=True)
class Config:
    """The complete content of ``decoder.json``; the network's shape is the shipped codec's."""

    windows: Windows
    losses: Losses
    adversarial: Adversarial
    training: Training

    def __post_init__(self) -> None:
        if self.adversarial.listens:
            raise ValueError(
                f"shares={self.adversarial.shares}: no voices are matched here, the last must be 0"
            )

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object that ``config_from`` reads."""
        return asdict(self)


def config_from(values: dict[str, Any]) -> Config:
    """Build a config from its JSON object; raises ValueError for a missing or unknown key."""
    try:
        return Config(
            windows=Windows(**values["windows"]),
            losses=Losses(**as_tuples(values["losses"])),
            adversarial=Adversarial(**as_tuples(values["adversarial"])),
            training=Training(**values["training"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"decoder config: {error}; compare it with lab/training/configs/decoder.json"
        ) from error


def load_config(path: Path = DEFAULT) -> Config:
    """Read a config file; a file with a ``base`` (another file in its folder) contains only the differences."""
    return config_from(read_values(path))

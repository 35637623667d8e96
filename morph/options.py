"""Options of the engine: frozen, and checked when they are made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PREDICTED_GROUPS = 15
DEFAULT_SEQ_GROUPS = 5
FRAME_RATE = 12.5
PRECISIONS = ("auto", "bf16", "fp16", "fp32")
ATTENTIONS = ("auto", "sdpa", "flash_attention_2", "eager")
ENGINES = ("auto", "eager", "graph")
DECODINGS = ("crossbar", "lossless")
TAILS = ("auto", "stock")
WEIGHTS = ("full", "int8")


def check_seq_groups(seq_groups: int) -> int:
    """Give ``seq_groups`` back when it is in 1..15, else raise ValueError."""
    if (
        not isinstance(seq_groups, int)
        or isinstance(seq_groups, bool)
        or not 1 <= seq_groups <= PREDICTED_GROUPS
    ):
        raise ValueError(f"SEQ_GROUPS is {seq_groups!r}: choose 1 to {PREDICTED_GROUPS} (15 is exact)")
    return seq_groups


def check_engine(engine: str) -> str:
    """Give ``engine`` back when it is one of ENGINES, else raise ValueError."""
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}: choose one of {', '.join(ENGINES)}")
    return engine


def check_decoding(decoding: str) -> str:
    """Give ``decoding`` back when it is one of DECODINGS, else raise ValueError."""
    if decoding not in DECODINGS:
        raise ValueError(f"decoding is {decoding!r}: choose one of {', '.join(DECODINGS)}")
    return decoding


def check_tail(tail: str) -> str:
    """Give ``tail`` back when it is one of TAILS, else raise ValueError."""
    if tail not in TAILS:
        raise ValueError(f"tail is {tail!r}: choose one of {', '.join(TAILS)}")
    return tail


@dataclass(frozen=True)
class Draw:
    """How one token is drawn from its logits; the names and the order are transformers'."""

    do_sample: bool = True
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(
                f"temperature is {self.temperature}: choose above 0, or turn sampling off for greedy"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}: choose 0 (off) or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}: choose above 0 and at most 1 (off)")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], prefix: str, do_sample: str) -> Draw:
        """Read the keys of one of the two samplers; upstream spells the sub-talker's switch another way."""
        return cls(
            do_sample=config.get(do_sample, True),
            temperature=config.get(prefix + "temperature", 0.9),
            top_k=config.get(prefix + "top_k", 50),
            top_p=config.get(prefix + "top_p", 1.0),
        )


@dataclass(frozen=True)
class Sampling:
    """Sampling of the talker (group 0) and of the code predictor ("sub-talker", groups 1-15).

    ``max_seconds`` caps each line's audio; None leaves it to the guard and to ``max_new_tokens``.
    """

    talker: Draw = Draw()
    subtalker: Draw = Draw()
    repetition_penalty: float = 1.05
    max_seconds: float | None = None
    max_new_tokens: int = 8192

    def __post_init__(self) -> None:
        if not (math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            raise ValueError(f"repetition_penalty is {self.repetition_penalty}: choose above 0 (1 is off)")
        if self.max_seconds is not None and not 0 < self.max_seconds <= 3600:
            raise ValueError(f"max seconds is {self.max_seconds}: choose above 0 and at most 3600")
        if self.max_new_tokens < 2:
            raise ValueError(f"max_new_tokens is {self.max_new_tokens}: choose 2 or more")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Sampling:
        """Read a checkpoint's ``generation_config.json``; what it lacks, or has as null, takes upstream's defaults."""
        config = {key: value for key, value in config.items() if value is not None}
        return cls(
            talker=Draw.from_config(config, "", "do_sample"),
            subtalker=Draw.from_config(config, "subtalker_", "subtalker_dosample"),
            repetition_penalty=config.get("repetition_penalty", 1.05),
            max_new_tokens=config.get("max_new_tokens", 2048),
        )

    @property
    def max_frames(self) -> int:
        """The most frames a line may have: upstream's last token makes no frame."""
        frames = self.max_new_tokens - 1
        return (
            frames if self.max_seconds is None else max(1, min(frames, round(self.max_seconds * FRAME_RATE)))
        )


@dataclass(frozen=True)
class GenerateOptions:
    """How lines are turned into speech.

    Args:
        seq_groups: how many of the 15 groups run one after another; 15 is exact, below is approximate.
        sampling: None takes the checkpoint's own.
        batch_size: how many lines are decoded together at most.
        guard: end lines that run on far beyond their text, or loop.
        split_chars: longer texts are split at sentence ends into pieces of at most this many characters; 0: never.
        crossfade_ms: between the pieces of a split text.
        decoding: "crossbar" keeps what the crossbar draws; "lossless" lets it draft, and is distributed as 15
            ``seq_groups`` whatever ``seq_groups`` is.
        tail: "auto" takes the checkpoint's trained tail where it has one for this SEQ_GROUPS; "stock" never.
    """

    seq_groups: int = DEFAULT_SEQ_GROUPS
    sampling: Sampling | None = None
    batch_size: int = 8
    guard: bool = True
    split_chars: int = 400
    crossfade_ms: float = 60.0
    decoding: str = "crossbar"
    tail: str = "auto"

    def __post_init__(self) -> None:
        check_seq_groups(self.seq_groups)
        check_decoding(self.decoding)
        check_tail(self.tail)
        if not 1 <= self.batch_size <= 256:
            raise ValueError(f"batch size is {self.batch_size}: choose 1 to 256")
        if self.split_chars != 0 and self.split_chars < 40:
            raise ValueError(f"split_chars is {self.split_chars}: choose 0 (never split) or at least 40")
        if not 0 <= self.crossfade_ms <= 1000:
            raise ValueError(f"crossfade is {self.crossfade_ms} ms: choose 0 to 1000")


@dataclass(frozen=True)
class LoadOptions:
    """How a checkpoint is loaded: one of PRECISIONS, ATTENTIONS (for the eager engine), ENGINES and WEIGHTS.

    ``precision`` is what is computed in; ``weights`` "int8" keeps most of them in half of bf16's bytes, approximately
    (see ``int8.py``).
    """

    precision: str = "auto"
    attention: str = "auto"
    engine: str = "auto"
    weights: str = "full"

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision is {self.precision!r}: choose one of {', '.join(PRECISIONS)}")
        if self.attention not in ATTENTIONS:
            raise ValueError(f"attention is {self.attention!r}: choose one of {', '.join(ATTENTIONS)}")
        check_engine(self.engine)
        if self.weights not in WEIGHTS:
            raise ValueError(f"weights is {self.weights!r}: choose one of {', '.join(WEIGHTS)}")

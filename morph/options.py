"""Options of the engine: frozen, and validated on construction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..postprocess.checks import check_choice, check_switch, is_number, is_whole

PREDICTED_GROUPS = 15
DEFAULT_SEQ_GROUPS = 5
FRAME_RATE = 12.5
PRECISIONS = ("auto", "bf16", "fp16", "fp32")
ATTENTIONS = ("auto", "sdpa", "flash_attention_2", "eager")
ENGINES = ("auto", "eager", "graph")
TAILS = ("auto", "stock")
WEIGHTS = ("full", "int8")
NORMALIZE = ("auto", "off")
IGNORE, END_AT_ONCE = "ignore", "end"
WRONG_WORDS = (IGNORE, "retry", END_AT_ONCE)
LEAST_TEMPERATURE, MOST_TEMPERATURE = 0.01, 10.0  # beyond them logits are not finite, or all alike
LEAST_PENALTY, MOST_PENALTY = 0.1, 10.0
MOST_LINES = 512  # decoded together
AUTO_ROWS = 0  # for ``batch_size``
MOST_RETRIES = 10
MOST_SEED = 2**64 - 1  # the largest that ComfyUI and torch accept
MOST_CHUNK_FRAMES = 300
ADAPTER_STRENGTHS = (-4.0, 4.0)  # how much of a LoRA is added to a checkpoint (``model/adapter.py``)
SHIFT_STRENGTHS = (-2.0, 3.0)  # how often a shift's difference is added to a voice (``voice/shift.py``)


# Settings that were removed, and the value that asked for something.
REMOVED = {"decoding": "lossless", "continuity": True}


def removed_in(given: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of removed settings that ask for something."""
    return tuple(name for name, value in REMOVED.items() if given.get(name) == value)


def check_seq_groups(seq_groups: int) -> int:
    """Return ``seq_groups`` as a Python int if it is in 1..15, else raise ValueError."""
    if not is_whole(seq_groups, 1, PREDICTED_GROUPS):
        raise ValueError(f"SEQ_GROUPS is {seq_groups!r}: choose 1 to {PREDICTED_GROUPS} (15 is exact)")
    return int(seq_groups)


def check_strength(strength: float) -> float:
    """Return an adapter's strength if it is a number within ADAPTER_STRENGTHS, else raise ValueError."""
    low, high = ADAPTER_STRENGTHS
    if not is_number(strength, low, high):
        raise ValueError(f"strength is {strength!r}: choose {low:g} to {high:g} (1 is as trained)")
    return float(strength)


def parse_groups(text: str) -> list[int]:
    """Read a list such as "1, 3, 5, 15"; return it sorted, without duplicates. ValueError outside 1..15."""
    words = re.split(r"[\s,;]+", text.strip(" \t\r\n,;"))
    if not all(re.fullmatch("[0-9]{1,3}", word) for word in words):
        raise ValueError(
            f"SEQ_GROUPS list is {text[:40]!r}: write numbers from 1 to 15, such as 1, 3, 5, 7, 15"
        )
    return sorted({check_seq_groups(int(word)) for word in words})


def check_engine(engine: str) -> str:
    """Return ``engine`` if it is one of ENGINES, else raise ValueError."""
    return check_choice("engine", engine, ENGINES)


def check_tail(tail: str) -> str:
    """Return ``tail`` if it is one of TAILS, else raise ValueError."""
    return check_choice("tail", tail, TAILS)


def _keep_plain(options: Any) -> None:
    for field in fields(options):
        value = getattr(options, field.name)
        if isinstance(value, np.generic):
            object.__setattr__(options, field.name, value.item())


@dataclass(frozen=True)
class TokenSampling:
    """How one token is sampled from its logits; the names and the order are transformers'."""

    do_sample: bool = True
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0

    def __post_init__(self) -> None:
        _keep_plain(self)
        check_switch("do_sample", self.do_sample)
        if not is_number(self.temperature, LEAST_TEMPERATURE, MOST_TEMPERATURE):
            raise ValueError(
                f"temperature is {self.temperature!r}: choose {LEAST_TEMPERATURE:g} to {MOST_TEMPERATURE:g}, or turn "
                "sampling off for greedy"
            )
        if not is_whole(self.top_k, 0):
            raise ValueError(f"top_k is {self.top_k!r}: choose a whole number, 0 (off) or more")
        if not is_number(self.top_p, 0, 1) or self.top_p == 0:
            raise ValueError(f"top_p is {self.top_p!r}: choose above 0 and at most 1 (off)")

    @classmethod
    def from_config(cls, config: Mapping[str, Any], prefix: str, do_sample: str) -> TokenSampling:
        """Read the keys of one of the two samplers; upstream spells the sub-talker's switch differently."""
        return cls(
            do_sample=config.get(do_sample, True),
            temperature=config.get(prefix + "temperature", 0.9),
            top_k=config.get(prefix + "top_k", 50),
            top_p=config.get(prefix + "top_p", 1.0),
        )


@dataclass(frozen=True)
class Sampling:
    """Sampling of the talker (group 0) and of the code predictor ("sub-talker", groups 1-15).

    ``max_seconds`` caps each line's speech, all of its pieces together but without the pauses in its text; None leaves
    it to the guard and to ``max_new_tokens``, which caps each piece.
    """

    talker: TokenSampling = TokenSampling()
    subtalker: TokenSampling = TokenSampling()
    repetition_penalty: float = 1.05
    max_seconds: float | None = None
    max_new_tokens: int = 8192

    def __post_init__(self) -> None:
        _keep_plain(self)
        for name in ("talker", "subtalker"):
            if not isinstance(getattr(self, name), TokenSampling):
                raise ValueError(f"{name} is {getattr(self, name)!r}: choose a TokenSampling")
        if not is_number(self.repetition_penalty, LEAST_PENALTY, MOST_PENALTY):
            raise ValueError(
                f"repetition_penalty is {self.repetition_penalty!r}: choose {LEAST_PENALTY:g} to {MOST_PENALTY:g} "
                "(1 is off)"
            )
        if self.max_seconds is not None and (
            not is_number(self.max_seconds, 0, 3600) or not self.max_seconds
        ):
            raise ValueError(f"max_seconds is {self.max_seconds!r}: choose above 0 and at most 3600")
        if not is_whole(self.max_new_tokens, 2):
            raise ValueError(f"max_new_tokens is {self.max_new_tokens!r}: choose a whole number, 2 or more")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Sampling:
        """Read a checkpoint's ``generation_config.json``; missing or null values take upstream's defaults."""
        config = {key: value for key, value in config.items() if value is not None}
        return cls(
            talker=TokenSampling.from_config(config, "", "do_sample"),
            subtalker=TokenSampling.from_config(config, "subtalker_", "subtalker_dosample"),
            repetition_penalty=config.get("repetition_penalty", 1.05),
            max_new_tokens=config.get("max_new_tokens", 2048),
        )

    @property
    def samplers(self) -> tuple[TokenSampling, TokenSampling, float]:
        """What chooses tokens: all but the limits."""
        return self.talker, self.subtalker, self.repetition_penalty

    @property
    def line_frames(self) -> int | None:
        """The maximum number of frames of a line, None for any number."""
        return None if self.max_seconds is None else max(1, round(self.max_seconds * FRAME_RATE))

    @property
    def max_frames(self) -> int:
        """The maximum number of frames of a piece of a line: upstream's last token makes no frame."""
        frames = self.max_new_tokens - 1
        return frames if self.line_frames is None else min(frames, self.line_frames)


@dataclass(frozen=True)
class GenerateOptions:
    """How lines are turned into speech.

    Args:
        seq_groups: how many of the 15 groups run sequentially; 15 is exact, fewer are approximate.
        sampling: None takes the checkpoint's own.
        batch_size: at most this many lines are decoded together; 0: as many as there are and the memory allows.
        guard: end lines that run on far beyond their text, or loop.
        split_chars: longer texts are split at sentence ends into pieces of at most this many characters, or of
            ``TextProfile.longest_piece`` if that is less; 0: never.
        tail: "auto" uses the checkpoint's trained tail if it has one for this SEQ_GROUPS; "stock" never does.
        retries: how often a piece that went wrong (silent, ended too early, ran on, looped, began with words of its
            reference; ``wrong_words``) is spoken again, each time with the next seed; 0 to 10.
        normalize: "auto" writes out figures and capitals as words for checkpoints that cannot read them; "off" never.
        wrong_words: what happens where the alignment head shows that words are skipped, said twice or invented
            (docs/words.md). "ignore": nothing. "retry": the piece counts as one that went wrong. "end": so too, and it
            ends when that is noticed, also in a stream. Checkpoints without such a head refuse all but "ignore".
        chunk_frames: for streams, the frames of a line's first chunks; the last number repeats. 1 to 300 each.
        trim_ends: cut the silence at both ends of a line, but for 40 ms (``postprocess/ends.py``). Pauses stay.
    """

    seq_groups: int = DEFAULT_SEQ_GROUPS
    sampling: Sampling | None = None
    batch_size: int = AUTO_ROWS
    guard: bool = True
    split_chars: int = 400
    tail: str = "auto"
    retries: int = 1
    normalize: str = "auto"
    wrong_words: str = IGNORE
    chunk_frames: tuple[int, ...] = (1, 1, 2, 4, 8, 12)
    trim_ends: bool = False

    def __post_init__(self) -> None:
        _keep_plain(self)
        check_choice("normalize", self.normalize, NORMALIZE)
        check_choice("wrong_words", self.wrong_words, WRONG_WORDS)
        if not is_whole(self.retries, 0, MOST_RETRIES):
            raise ValueError(f"retries is {self.retries!r}: choose a whole number from 0 to {MOST_RETRIES}")
        check_seq_groups(self.seq_groups)
        check_tail(self.tail)
        check_switch("guard", self.guard)
        check_switch("trim_ends", self.trim_ends)
        if self.sampling is not None and not isinstance(self.sampling, Sampling):
            raise ValueError(
                f"sampling is {self.sampling!r}: choose a Sampling, or None for the checkpoint's own"
            )
        if not is_whole(self.batch_size, AUTO_ROWS, MOST_LINES):
            raise ValueError(
                f"batch_size is {self.batch_size!r}: choose a whole number from 1 to {MOST_LINES}, or 0 for as many as "
                "there are lines and memory"
            )
        if not is_whole(self.split_chars, 0) or 0 < self.split_chars < 40:
            raise ValueError(
                f"split_chars is {self.split_chars!r}: choose 0 (never split) or a whole number from 40"
            )
        _check_chunk_frames(self.chunk_frames)


def _check_chunk_frames(sizes: object) -> None:
    """Raise ValueError for anything but a tuple of one or more whole numbers from 1 to MOST_CHUNK_FRAMES."""
    whole = isinstance(sizes, tuple) and all(is_whole(size, 1, MOST_CHUNK_FRAMES) for size in sizes)
    if not whole or not sizes:
        raise ValueError(
            f"chunk_frames is {sizes!r}: choose a tuple of whole numbers from 1 to {MOST_CHUNK_FRAMES}, one or more"
        )


@dataclass(frozen=True)
class LoadOptions:
    """How a checkpoint is loaded: one of PRECISIONS, ATTENTIONS (for the eager engine), ENGINES and WEIGHTS.

    ``precision`` is the dtype of the computation. ``weights`` "int8" stores most of them in half of bf16's bytes, as an
    approximation (see ``int8.py``).
    """

    precision: str = "auto"
    attention: str = "auto"
    engine: str = "auto"
    weights: str = "full"

    def __post_init__(self) -> None:
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("attention", self.attention, ATTENTIONS)
        check_engine(self.engine)
        check_choice("weights", self.weights, WEIGHTS)

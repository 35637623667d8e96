"""A line to decode, the input of both engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from ..options import GenerateOptions, Sampling
from ..voice.prompt import Prompt


@dataclass
class Guard:
    """The stop criteria of a line that misses its EOS; ``max_frames`` changes while its text comes.

    Upstream has none: such a line runs on to ``max_new_tokens`` (8192 frames, eleven minutes).
    """

    max_frames: int
    detect_loops: bool = True


class FollowsWords(Protocol):
    """Notices wrong words of a line from its alignment (``words/guard.py``)."""

    def take(self, token: int, weight: float) -> object | None:
        """Add a frame; return a fault, or None."""


class Group(NamedTuple):
    """The settings that all lines of one frame share; a line's talker does not know them."""

    seq_groups: int
    tail: str

    @classmethod
    def of(cls, options: GenerateOptions) -> Group:
        return cls(options.seq_groups, options.tail)


class LateText(Protocol):
    """A line's text that comes while the line is decoded. Only the decoding thread calls it."""

    def ready(self, frame: int) -> bool:
        """Return whether all text that a frame (from 0) depends on has come; until then the line stalls."""

    def take(self) -> LatePart | None:
        """Return the text since the last call, or None."""


@dataclass(frozen=True)
class LatePart:
    """Text after a prompt's ``trailing``."""

    rows: torch.Tensor  # ``[N, H]``
    min_frames: int  # of the line, as known by now
    text_tokens: int = 0  # of the line by now, those of the prompt included


@dataclass(frozen=True)
class LineRequest:
    """A line to decode.

    Args:
        guard: its limits, which count its frames.
        seed: of the line's random stream. The two engines use different generators.
        text: the rest of the prompt's text; None: the prompt has all of it.
        sampling: None: as the options of the decoding say. Its limits are not used: see ``guard``.
        is_streamed: whether its first frame is urgent.
        words: ends the line with the first frame at which it finds a fault.
        group: None: that of the decoding's options.
    """

    prompt: Prompt
    guard: Guard
    seed: int = 0
    text: LateText | None = None
    sampling: Sampling | None = None
    is_streamed: bool = False
    words: FollowsWords | None = None
    group: Group | None = None

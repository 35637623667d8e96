"""A part of a line that is decoded by itself: its text, frames, samples and takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..decode.buffers import LineFrames
from ..decode.decoded import Decoded
from ..voice.prompt import Prompt
from .takes import Take, next_seed

NO_SAMPLES = np.zeros(0, dtype=np.float32)


@dataclass(eq=False)
class Piece:
    """A part of a line that is decoded by itself, and its take in progress."""

    text: str = ""  # as spoken
    seed: int = 0  # of its first take
    stride: int = 1  # from a take's seed to the next take's
    pause_s: float = 0.0  # seconds of silence before it
    after_s: float = 0.0  # and after it; only for a line's last piece
    made: Prompt | None = None  # None until it is built
    take: Take | None = None  # the best so far
    # The take in progress
    frames: LineFrames = field(default_factory=LineFrames)
    ended: str | None = None
    waves: list[np.ndarray] = field(default_factory=list)
    decoded: int = 0  # frames with samples in ``waves``
    silence: int = 0  # samples before the piece that have not been sent

    @property
    def prompt(self) -> Prompt:
        assert self.made is not None
        return self.made

    def seed_of(self, take: int) -> int:
        """Return the seed of a take, counted from 1; no two pieces of a line share one."""
        return next_seed(self.seed, self.stride, take - 1)

    @property
    def waiting(self) -> int:
        return len(self.frames) - self.decoded

    def drop_waiting(self) -> None:
        self.frames.cut(self.decoded)

    def end_take(self) -> tuple[Decoded, np.ndarray]:
        """Return the take in progress and its samples, and forget it."""
        made = Decoded(self.frames.codes(), str(self.ended), self.frames.trace())
        wave = concatenate(self.waves)
        self.frames, self.ended, self.waves, self.decoded = LineFrames(), None, [], 0
        return made, wave


def concatenate(waves: Sequence[np.ndarray]) -> np.ndarray:
    """Return the waves joined, float32 ``[T]``; T may be 0. A single one is not copied."""
    parts = list(filter(len, waves))
    return parts[0] if len(parts) == 1 else np.concatenate([NO_SAMPLES, *parts])

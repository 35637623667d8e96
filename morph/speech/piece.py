"""A part of a line that is decoded by itself: its text, codes, samples and takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ..decode.decoded import ALIGNMENT, FLAG, REPORT_WIDTH, Decoded
from ..voice.prompt import Prompt
from ..words.trace import Trace
from .retries import next_seed
from .takes import Take

FIRST_ROOM = 64  # frames; room doubles from here
NO_SAMPLES = np.zeros(0, dtype=np.float32)


class CodeFrames:
    """Frames in order, as engines report them (``decode/decoded.py``), in one buffer.

    A tensor per frame would burden the garbage collector: with 256 lines of a minute each, it stopped the process for
    100 ms and more, repeatedly.
    """

    def __init__(self) -> None:
        self._frames = np.empty((FIRST_ROOM, REPORT_WIDTH), dtype=np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, frame: np.ndarray) -> None:
        """Copy a frame, int64 ``[REPORT_WIDTH]``."""
        if self._count == len(self._frames):
            self._frames = np.concatenate((self._frames, np.empty_like(self._frames)))
        self._frames[self._count] = frame
        self._count += 1

    def part(self, begin: int = 0, end: int | None = None) -> torch.Tensor:
        """Return a copy of some frames' codes, int64 ``[n, 16]``."""
        return torch.from_numpy(self._part(begin, end)[:, :FLAG].copy())

    def reported(self, begin: int, end: int) -> np.ndarray | None:
        """Return a copy of the alignment numbers of some frames; None if the checkpoint has none."""
        numbers = self._part(begin, end)[:, ALIGNMENT:]
        return numbers.copy() if numbers.any() else None

    def trace(self) -> Trace | None:
        """Return which text token each frame is on; None if the checkpoint does not report it."""
        return Trace.from_numbers(self._part(0, None)[:, ALIGNMENT:])

    def _part(self, begin: int, end: int | None) -> np.ndarray:
        return self._frames[begin : self._count if end is None else min(end, self._count)]

    def cut(self, count: int) -> None:
        """Drop the frames after the first ``count``."""
        self._count = min(self._count, count)


@dataclass(eq=False)
class Making:
    """A take in progress; ``silence``: samples before the piece that have not been sent."""

    silence: int = 0
    codes: CodeFrames = field(default_factory=CodeFrames)
    ended: str | None = None
    waves: list[np.ndarray] = field(default_factory=list)
    decoded: int = 0  # frames with samples in ``waves``

    @property
    def waiting(self) -> int:
        return len(self.codes) - self.decoded

    def drop_waiting(self) -> None:
        self.codes.cut(self.decoded)

    def result(self) -> tuple[Decoded, np.ndarray]:
        return Decoded(self.codes.part(), str(self.ended), self.codes.trace()), concatenate(self.waves)


@dataclass(eq=False)
class Piece:
    """A part of a line that is decoded by itself."""

    text: str = ""  # as spoken
    seed: int = 0  # of its first take
    stride: int = 1  # from a take's seed to the next take's
    pause_s: float = 0.0  # seconds of silence before it
    after_s: float = 0.0  # and after it; only for a line's last piece
    made: Prompt | None = None  # None until it is built
    take: Take | None = None  # the best so far
    making: Making = field(default_factory=Making)

    @property
    def prompt(self) -> Prompt:
        assert self.made is not None
        return self.made

    def seed_of(self, take: int) -> int:
        """Return the seed of a take, counted from 1; no two pieces of a line share one."""
        return next_seed(self.seed, self.stride, take - 1)


def concatenate(waves: Sequence[np.ndarray]) -> np.ndarray:
    """Return the waves joined, float32 ``[T]``; T may be 0. A single one is not copied."""
    parts = [wave for wave in waves if len(wave)]
    return parts[0] if len(parts) == 1 else np.concatenate([NO_SAMPLES, *parts])

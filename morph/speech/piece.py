"""A part of a line that is decoded by itself: the one record of its text, codes, samples and takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ..decode.decoded import ALIGNMENT, FLAG, REPORT_WIDTH, Decoded
from ..voice.prompt import Prompt
from ..words.trace import Trace
from .takes import Take

FIRST_ROOM = 64  # frames; room doubles from here
NO_SAMPLES = np.zeros(0, dtype=np.float32)


class CodeFrames:
    """Frames in the order of their coming, as engines report them (``decode/decoded.py``), in one buffer.

    A tensor for each would be an object for Python's garbage collector: with those of 256 lines a minute long it stops
    the process for 100 ms and more, again and again.
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
        """Return a copy of some frames' codes, int64 ``[n, 16]``; ``end`` None: to the last one."""
        return torch.from_numpy(self._part(begin, end)[:, :FLAG].copy())

    def reported(self, begin: int, end: int) -> np.ndarray | None:
        """Return a copy of what the alignment head said of some frames; None where the checkpoint has none."""
        numbers = self._part(begin, end)[:, ALIGNMENT:]
        return numbers.copy() if numbers.any() else None

    def trace(self) -> Trace | None:
        """Return which text token the frames are on; None where the checkpoint does not say it."""
        return Trace.from_numbers(self._part(0, None)[:, ALIGNMENT:])

    def _part(self, begin: int, end: int | None) -> np.ndarray:
        return self._frames[begin : self._count if end is None else min(end, self._count)]

    def cut(self, count: int) -> None:
        """Forget the frames after the first ``count``."""
        self._count = min(self._count, count)


@dataclass(eq=False)
class Making:
    """A take of a piece while it is made.

    Args:
        silence: samples of silence before the piece that have not been sent.
        codes: as far as they have come.
        ended: how it ended, None while it is made.
        waves: its samples as far as they have been decoded,
        decoded: and the frames that they are of.
    """

    silence: int = 0
    codes: CodeFrames = field(default_factory=CodeFrames)
    ended: str | None = None
    waves: list[np.ndarray] = field(default_factory=list)
    decoded: int = 0

    @property
    def waiting(self) -> int:
        """How many frames have codes and no samples."""
        return len(self.codes) - self.decoded

    def drop_waiting(self) -> None:
        """Forget the codes without samples."""
        self.codes.cut(self.decoded)

    def result(self) -> tuple[Decoded, np.ndarray]:
        """Return the codes and the samples."""
        return Decoded(self.codes.part(), str(self.ended), self.codes.trace()), concatenate(self.waves)


@dataclass(eq=False)
class Piece:
    """A part of a line that is decoded by itself.

    Args:
        text: as it is spoken.
        seed: of its first take.
        stride: the distance from its seed to that of its next take.
        pause_s: seconds of silence before it.
        after_s: and after it; only a line's last piece has any.
        made: its prompt; None until there is one.
        take: the best take so far.
        making: the take that is being made, or was made last and is not judged.
    """

    text: str = ""
    seed: int = 0
    stride: int = 1
    pause_s: float = 0.0
    after_s: float = 0.0
    made: Prompt | None = None
    take: Take | None = None
    making: Making = field(default_factory=Making)

    @property
    def prompt(self) -> Prompt:
        """Its prompt; there is one."""
        assert self.made is not None
        return self.made

    def seed_of(self, take: int) -> int:
        """Return the seed of a take, counted from 1; no two pieces of a line share one."""
        return self.seed + (take - 1) * self.stride


def concatenate(waves: Sequence[np.ndarray]) -> np.ndarray:
    """Return waves one after another, float32 ``[T]``; T may be 0. A single one is not copied."""
    parts = [wave for wave in waves if len(wave)]
    return parts[0] if len(parts) == 1 else np.concatenate([NO_SAMPLES, *parts])

"""The frames of codes of one piece, as they come."""

from __future__ import annotations

import numpy as np
import torch

from ..voice.voice import CODE_GROUPS

FIRST_ROOM = 64  # frames; room doubles from here


class CodeFrames:
    """Frames ``[16]`` in the order of their coming, in one buffer.

    A tensor for each would be an object for Python's garbage collector: with those of 256 lines a minute long it stops
    the process for 100 ms and more, again and again.
    """

    def __init__(self) -> None:
        self._frames = np.empty((FIRST_ROOM, CODE_GROUPS), dtype=np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, codes: np.ndarray) -> None:
        """Copy a frame, int64 ``[16]``."""
        if self._count == len(self._frames):
            self._frames = np.concatenate((self._frames, np.empty_like(self._frames)))
        self._frames[self._count] = codes
        self._count += 1

    def part(self, begin: int = 0, end: int | None = None) -> torch.Tensor:
        """Return a copy of some frames, int64 ``[n, 16]``; ``end`` None: to the last one."""
        end = self._count if end is None else min(end, self._count)
        return torch.from_numpy(self._frames[begin:end].copy())

    def cut(self, count: int) -> None:
        """Forget the frames behind the first ``count``."""
        self._count = min(self._count, count)

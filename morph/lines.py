"""What the host knows of the lines of a decoding: their frames, and how each ends."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .eager import Decoded
from .guard import Guard
from .noise import GROUPS


class Lines:
    """Follows the lines of a decoding on the host: their frames, and how each ends."""

    def __init__(self, guards: Sequence[Guard], eos: int):
        self.guards = guards
        self.eos = eos
        self.ends: list[str | None] = [None] * len(guards)
        self.frames: list[torch.Tensor] = []

    @property
    def going(self) -> list[int]:
        """Rows of the lines that have not ended."""
        return [row for row, end in enumerate(self.ends) if end is None]

    def add(self, report: torch.Tensor) -> int:
        """Take a report ``[B, 17]``; give the number of lines that have made this frame."""
        first, overflown = report[:, 0].tolist(), report[:, GROUPS].tolist()
        for row in self.going:
            if overflown[row]:
                raise ValueError(
                    "the model's numbers overflow in fp16: load it with precision auto, fp32 or bf16"
                )
            if first[row] == self.eos:
                self.ends[row] = "eos"
        going = self.going
        if going:
            self.frames.append(report[:, :GROUPS])
        for row in going:
            self.ends[row] = self.guards[row].add(first[row])
        return len(going)

    def collect(self) -> list[Decoded]:
        """Cut each line's codes out of the batch's frames: a guard counted the frames of its line."""
        codes = (
            torch.stack(self.frames, dim=1) if self.frames else torch.zeros(len(self.ends), 0, GROUPS).long()
        )
        return [
            Decoded(codes[row, : guard.frames].clone(), str(end))
            for row, (guard, end) in enumerate(zip(self.guards, self.ends, strict=True))
        ]

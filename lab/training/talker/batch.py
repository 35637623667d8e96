"""A batch on its way from the processes that make it to the update: one tensor, copied once."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from .config import GROUPS

COUNTED = ("groups", "phones", "speakers")  # the losses whose targets are more or fewer from batch to batch


class Batch(NamedTuple):
    """``flat`` int32 holds the ``Fields`` of ``lines`` B and ``length`` T, one after another."""

    flat: torch.Tensor
    lines: int
    length: int

    def to(self, device: torch.device) -> Batch:
        """The same on a device; does not wait where ``flat`` is pinned."""
        return self._replace(flat=self.flat.to(device, non_blocking=True))

    def known(self) -> torch.Tensor:
        """How many targets ``COUNTED`` losses have, float32 ``[3]``."""
        return self.flat[: len(COUNTED)].float()

    def fields(self) -> Fields:
        """Views of one int64 copy."""
        sizes = [math.prod(shape) for shape in self._shapes()]
        parts = self.flat.long().split([*sizes, len(self.flat) - sum(sizes)])
        shaped = (part.view(shape) for part, shape in zip(parts, self._shapes(), strict=False))
        return Fields(*shaped, parts[-1])

    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of all fields but the last, which has what is left."""
        lines, length = self.lines, self.length
        place = (lines, length)
        return (
            (len(COUNTED),),
            *(place, (*place, GROUPS), (*place, GROUPS), (*place, 2)),
            *((lines,), (lines,), (lines, 2)),
        )


class Fields(NamedTuple):
    """B lines of T positions; integers, -1 where there is nothing.

    ``known`` [3]: targets of ``COUNTED``; ``text`` [B, T]; ``codes`` [B, T, 16] (noised), ``targets`` [B, T, 16]
    (clean; EOS in group 0 alone) and ``phones`` [B, T, 2] of the frame that a position predicts; ``speaker_at``,
    ``speaker`` [B]; ``stretches`` [B, 2]: the reference's first row of ``Codes.mels``, and how many; ``picked`` [K]
    flat positions whose frames the predictor learns.
    """

    known: torch.Tensor
    text: torch.Tensor
    codes: torch.Tensor
    targets: torch.Tensor
    phones: torch.Tensor
    speaker_at: torch.Tensor
    speaker: torch.Tensor
    stretches: torch.Tensor
    picked: torch.Tensor

    def mel_rows(self, frames: int) -> torch.Tensor:
        """Rows of ``Codes.mels`` ``[B, frames]``: each stretch, round and round."""
        begins, sizes = self.stretches[:, :1], self.stretches[:, 1:]
        return begins + torch.arange(frames, device=begins.device)[None] % sizes


def pack(fields: dict[str, np.ndarray]) -> Batch:
    """A batch of ``Fields`` by name."""
    flat = np.concatenate([np.asarray(fields[name], np.int32).ravel() for name in Fields._fields])
    return Batch(torch.from_numpy(flat), *fields["text"].shape)

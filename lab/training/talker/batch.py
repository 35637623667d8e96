"""A batch as it travels from worker processes to the update: one tensor, copied once."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from .config import GROUPS

COUNTED = ("groups", "phones", "speakers")  # losses whose number of targets varies from batch to batch


class Batch(NamedTuple):
    """``flat`` int32 contains the ``Fields`` of ``lines`` B and ``length`` T, concatenated."""

    flat: torch.Tensor
    lines: int
    length: int

    def to(self, device: torch.device) -> Batch:
        """Return a copy on a device; does not wait if ``flat`` is pinned."""
        return self._replace(flat=self.flat.to(device, non_blocking=True))

    def known(self) -> torch.Tensor:
        """Return the number of targets of the ``COUNTED`` losses, float32 ``[3]``."""
        return self.flat[: len(COUNTED)].float()

    def fields(self) -> Fields:
        """Return the fields, as views of one int64 copy."""
        shapes = self._shapes()
        sizes = [math.prod(shape) for shape in shapes]
        parts = self.flat.long().split([*sizes, len(self.flat) - sum(sizes)])
        return Fields(*(part.view(shape) for part, shape in zip(parts, (*shapes, (-1,)), strict=True)))

    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of all fields but the last, which gets the remaining values."""
        lines, length = self.lines, self.length
        positions = (lines, length)
        return (
            (len(COUNTED),),
            *(positions, (*positions, GROUPS), (*positions, GROUPS), (*positions, 2)),
            *((lines,), (lines,), (lines, 2)),
        )


class Fields(NamedTuple):
    """B lines of T positions; integers, -1 for nothing.

    ``known`` [3]: number of targets of ``COUNTED``; ``text`` [B, T]; ``codes`` [B, T, 16] (noised), ``targets``
    [B, T, 16] (clean; EOS only in group 0) and ``phones`` [B, T, 2] of the frame that a position predicts;
    ``speaker_at``, ``speaker`` [B]; ``stretches`` [B, 2]: first row and number of rows of the reference in
    ``Codes.mels``; ``picked`` [K]: flat positions whose frames the predictor learns.
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
        """Return row indices of ``Codes.mels``, ``[B, frames]``: each stretch, repeated cyclically."""
        begins, sizes = self.stretches[:, :1], self.stretches[:, 1:]
        return begins + torch.arange(frames, device=begins.device)[None] % sizes


def pack(fields: dict[str, np.ndarray]) -> Batch:
    """Build a batch from ``Fields`` by name."""
    flat = np.concatenate([np.asarray(fields[name], np.int32).ravel() for name in Fields._fields])
    return Batch(torch.from_numpy(flat), *fields["text"].shape)

"""A line as the codec scheduler sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch

from ...model.finite import NotFinite
from ..speech import Chunk
from .claims import Claim, Pace
from .line_chunks import LineChunks


class TurnLine(ABC):
    """A line that ``CodecTurns`` knows by ``number``; ``reference``: int64 ``[R, groups]``, an ICL voice's codes."""

    chunks: LineChunks

    def __init__(self, number: int, reference: torch.Tensor | None):
        self.number, self.reference = number, reference
        self.begun = False  # whether the codec has a state for the current piece
        self.in_codec = False  # whether the codec decodes it now
        self.is_resting = False  # until ``CodecTurns`` sees that a chunk may be due

    @property
    def may_starve(self) -> bool:
        """Whether it may run out of text later, without notice."""
        return False

    @property
    @abstractmethod
    def is_starved(self) -> bool:
        """Whether it waits for text: no frame of it comes soon."""

    @property
    def is_awaited(self) -> bool:
        """Whether its first audio is due soon."""
        return not (self.chunks.sizes.has_begun or self.chunks.ended or self.is_starved)

    @property
    @abstractmethod
    def is_full(self) -> bool:
        """Whether its reader has enough for now: codes wait then."""

    @abstractmethod
    def put(self, chunk: Chunk) -> None:
        """Pass a chunk on to the reader."""

    @abstractmethod
    def break_off(self, error: NotFinite) -> None:
        """End the line with an error: its numbers or samples are not finite."""

    @abstractmethod
    def note_piece(self) -> None:
        """Note that a piece has been delivered to its end."""

    def claim(self, now: float, pace: Pace) -> Claim | None:
        if self.in_codec or self.chunks.ended:
            return None
        if self.is_starved:
            return self.claim_all(now)
        count, is_urgent = self.chunks.claim(now, pace)
        sizes = self.chunks.sizes
        return Claim(self.number, count, not sizes.has_begun, is_urgent, sizes.empty_at) if count else None

    def claim_all(self, now: float, hurry: bool = False) -> Claim | None:
        """Return what is due by the requested sizes, or None. ``hurry``: no other frames come soon."""
        if self.in_codec or self.chunks.ended:
            return None
        count = self.chunks.due(now, hurry or self.is_starved)
        return Claim(self.number, count, not self.chunks.sizes.has_begun, is_urgent=True) if count else None

    def add(self, codes: torch.Tensor, wave: np.ndarray, now: float) -> bool:
        """Deliver the samples of taken codes; return whether the current piece has ended with them."""
        self.in_codec = False
        piece = self.chunks.piece
        if piece is None or self.chunks.ended:  # meanwhile
            return False
        self.put(self.chunks.add(codes, wave, now))
        if self.chunks.piece is piece:
            return False
        self.note_piece()
        return True

    def end_piece(self, now: float) -> bool:
        """End the current piece if no codes of it are left; return whether it has ended."""
        piece = self.chunks.piece
        if piece is None or piece.ended is None or self.in_codec or piece.waiting:
            return False
        if (chunk := self.chunks.end_piece(now)) is not None:
            self.put(chunk)
        self.note_piece()
        return True

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

    def __init__(self, number: int, chunks: LineChunks, reference: torch.Tensor | None):
        self.number, self.chunks, self.reference = number, chunks, reference
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
        return not (self.chunks.has_begun or self.is_starved or self.ended)

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

    @property
    def ended(self) -> bool:
        return self.chunks.ended

    def claim(self, now: float, pace: Pace) -> Claim | None:
        if self.in_codec or self.ended:
            return None
        if self.is_starved:
            return self.claim_all(now)
        return self.chunks.claim(now, pace, self.number)

    def claim_all(self, now: float, hurry: bool = False) -> Claim | None:
        """Return what is due by the requested sizes, or None. ``hurry``: no other frames come soon."""
        if self.in_codec or self.ended:
            return None
        count = self.chunks.due(now, hurry or self.is_starved)
        return Claim(self.number, count, not self.chunks.has_begun, is_urgent=True) if count else None

    def take(self, frames: int) -> torch.Tensor:
        """Return the codes ``[n, 16]`` of the next frames, for the codec; ``add`` must follow."""
        self.in_codec = True
        return self.chunks.waiting(frames)

    def add(self, codes: torch.Tensor, wave: np.ndarray, now: float) -> bool:
        """Deliver the samples of taken codes; return whether the current piece has ended with them."""
        self.leave_codec()
        if self.ended:  # meanwhile
            return False
        piece = self.chunks.piece
        self.put(self.chunks.add(codes, wave, now))
        if self.chunks.piece is piece:
            return False
        self.note_piece()
        return True

    def leave_codec(self) -> None:
        """Note that the codec is done with the taken codes."""
        self.in_codec = False

    def end_piece(self, now: float) -> bool:
        """End the current piece if no codes of it are left; return whether it has ended."""
        if self.ended or self.in_codec or not self.chunks.piece_is_done:
            return False
        if (chunk := self.chunks.end_piece(now)) is not None:
            self.put(chunk)
        self.note_piece()
        return True

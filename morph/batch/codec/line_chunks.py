"""Turn one line's codes into chunks: pieces in order, chunk sizes, crossfades."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import numpy as np
import torch

from ....postprocess.ends import EndTrim
from ....postprocess.join import StreamJoin
from ...options import GenerateOptions
from ...speech.joined import CROSSFADE_MS
from ...speech.piece import NO_SAMPLES, Piece, concatenate
from ...voice.voice import CODE_GROUPS
from ..speech import Chunk, ChunkTrace
from .claims import Pace
from .pacing import ChunkSizes

NO_CODES = torch.zeros(0, CODE_GROUPS, dtype=torch.int64)


class PiecePlaces:
    """Where each piece that is not very short begins in the joined samples; ``fade`` is in samples."""

    def __init__(self, fade: int):
        self.index, self.start = -1, 0
        self._fade, self.length = fade, 0  # ``length``: of the piece's samples so far

    def begin(self, silence: int) -> None:
        fade = 0 if silence or self.index < 0 else min(self._fade, self.length // 2)
        self.start += self.length + silence - fade
        self.index, self.length = self.index + 1, 0


class LineChunks:
    """The chunks of one line. Pieces are added in order, also while earlier ones play.

    The line ends after ``most`` frames of all pieces. ``text_of`` returns a piece's text by its index.
    """

    def __init__(
        self,
        sizes: ChunkSizes,
        sample_rate: int,
        options: GenerateOptions,
        most: int | None = None,
        text_of: Callable[[int], str] = lambda _: "",
    ):
        self.sizes, self._sample_rate, self._text_of = sizes, sample_rate, text_of
        self.piece: Piece | None = None  # the current one; None if the next one has not come
        self._later: deque[Piece] = deque()
        fade = round(CROSSFADE_MS / 1000 * sample_rate)
        self._join = StreamJoin(None, fade)
        self._trim = EndTrim(sample_rate) if options.trim_ends else None
        self._complete = False
        self.ended = False
        self._left: float = math.inf if most is None else most  # frames until the line's limit
        self.is_cut = False  # whether the line ended at its limit
        self._start = 0
        self._places = PiecePlaces(fade)
        # Samples of silence before the first piece, which are not trimmed; 0 once they have been sent.
        self._before: int | None = None
        self._after = 0  # and after the last
        self._lead = 0  # like ``_before``, kept after sending

    def add_piece(self, piece: Piece) -> None:
        if self.is_cut:
            return
        if self._before is None:
            self._before, piece.silence = piece.silence, 0
            self._lead = self._before
        if self.piece is None:
            self.piece = piece
        else:
            self._later.append(piece)

    def _next_piece(self) -> None:
        self.piece = self._later.popleft() if self._later else None
        self.ended = self._complete and self.piece is None

    def complete(self, now: float, silence: int = 0) -> Chunk | None:
        """Note that no piece follows; return the line's last chunk if all have ended. ``silence``: samples after it."""
        if not self._left:
            return None
        self._complete, self._after, self.ended = True, silence, self.piece is None
        samples = self._join.limit(len(self._later) + (self.piece is not None))
        return self._chunk(NO_CODES, [samples], now) if self.ended else None

    def cancel(self) -> None:
        for piece in (self.piece, *self._later):
            if piece is not None:
                piece.drop_waiting()
        self._later.clear()
        self.piece, self._complete, self.ended = None, True, True

    @property
    def has_codes(self) -> bool:
        """Whether the current piece has codes, decoded or not, or has ended."""
        return self.piece is not None and (len(self.piece.frames) > 0 or self.piece.ended is not None)

    @property
    def waits_for_sound(self) -> bool:
        return not self.sizes.has_begun and self.piece is not None and self.piece.waiting > 0

    def missing(self, all_of_largest: bool) -> int | None:
        """Return the frames that the next chunk still lacks: nothing is due before, unless a reader runs dry.

        ``all_of_largest``: the next chunk has the largest size, as with many lines. None if more may be due at any
        time: before the first audio, or if the piece has ended or not come.
        """
        piece, sizes = self.piece, self.sizes
        if piece is None or piece.ended is not None or not sizes.has_begun:
            return None
        size = sizes.largest if all_of_largest else sizes.full
        return int(max(0, min(size, self._left) - piece.waiting))

    def due(self, now: float, hurry: bool) -> int:
        """Return how many waiting frames of the current piece to decode now. ``hurry``: no others come soon."""
        if (piece := self.piece) is None:
            return 0
        waiting = int(min(piece.waiting, self._left))
        hurry = hurry or piece.ended is not None or waiting == self._left
        return min(waiting, self.sizes.full) if hurry else self.sizes.due(waiting, now)

    def claim(self, now: float, pace: Pace) -> tuple[int, bool]:
        """Return how many frames to decode when many lines share the codec, and whether they are urgent."""
        if (piece := self.piece) is None or not (waiting := int(min(piece.waiting, self._left))):
            return 0, False
        if piece.ended is not None or waiting == self._left:
            return min(waiting, self.sizes.largest), True
        return self.sizes.patient(waiting, now, pace)

    def waiting(self, count: int) -> torch.Tensor:
        """Return the codes of the current piece's next frames, ``[count, 16]``."""
        assert self.piece is not None
        return self.piece.frames.codes(self.piece.decoded, self.piece.decoded + count)

    def add(self, codes: torch.Tensor, wave: np.ndarray, now: float) -> Chunk:
        """Accept the samples of codes that ``waiting`` returned; return the chunk for the reader."""
        assert self.piece is not None
        piece, begin, parts = self.piece, self.piece.decoded, []
        if not begin:
            parts = [self._begin(piece)]
        self._places.length += len(wave)
        piece.decoded += len(codes)
        numbers = piece.frames.reported(begin, piece.decoded)
        self._left -= len(codes)
        piece.waves.append(wave)
        parts.append(self._join.add(wave))
        if piece.ended is not None and not piece.waiting:  # its end comes with its last frames
            parts.append(self._join.end())
            self._next_piece()
        if not self._left:
            parts += self._cut()
        return self._chunk(codes, parts, now, begin, numbers)

    def _begin(self, piece: Piece) -> np.ndarray:
        """Begin a piece; return the pause before it."""
        silence, piece.silence = piece.silence, 0
        self._places.begin(silence)
        return self._join.gap(silence) if silence else NO_SAMPLES

    def _cut(self) -> list[np.ndarray]:
        """End the line at its limit; return the samples held back. No silence follows."""
        self._after = 0
        self.is_cut = self.piece is not None or not self._complete
        if self.piece is not None and self.piece.decoded:
            parts = [self._join.limit(1), self._join.end()]
        else:
            parts = [self._join.limit(0)]
        self.cancel()
        return parts

    def end_piece(self, now: float) -> Chunk | None:
        """End a piece whose end came after its last frames; return a chunk unless it would be empty."""
        assert self.piece is not None
        parts = [NO_SAMPLES if self.piece.decoded else self._begin(self.piece), self._join.end()]
        self._next_piece()
        return self._chunk(NO_CODES, parts, now) if any(map(len, parts)) or self.ended else None

    def _chunk(
        self,
        codes: torch.Tensor,
        parts: list[np.ndarray],
        now: float,
        begin: int = 0,
        numbers: np.ndarray | None = None,
    ) -> Chunk:
        """Return a chunk; ``begin`` is its first frame in the piece, ``numbers`` what the alignment head says."""
        words, places = None, self._places
        if numbers is not None:
            start = self._lead + places.start - (0 if self._trim is None else self._trim.start)
            words = ChunkTrace(numbers, places.index, begin, start, self._text_of(places.index))
        is_plain = self._trim is None and not self._before and not self.ended
        samples = concatenate(parts) if is_plain else self._finish(parts)
        chunk = Chunk(codes, samples, self._start, self.ended, words=words)
        self._start += len(samples)
        self.sizes.deliver(len(codes), len(samples) / self._sample_rate, now)
        return chunk

    def _finish(self, parts: list[np.ndarray]) -> np.ndarray:
        """Join samples, with trimmed ends, and the silence at the line's beginning and end."""
        if self._trim is not None:
            parts = [self._trim.add(concatenate(parts))]
        if self._before:
            parts.insert(0, np.zeros(self._before, dtype=np.float32))
            self._before = 0
        if self.ended:
            if self._trim is not None:
                parts.append(self._trim.end())
            parts.append(np.zeros(self._after, dtype=np.float32))
        return concatenate(parts)

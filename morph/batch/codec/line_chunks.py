"""Turn one line's codes into chunks: pieces in order, chunk sizes, crossfades."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from ....postprocess.join import NO_SAMPLES, LineJoin
from ...model.finite import NotFinite
from ...speech.pieces import LinePieces, Piece
from ...speech.text_feed import TokenFeed
from ...voice.voice import CODE_GROUPS
from ..speech import Chunk, ChunkTrace, Speech
from .pacing import ChunkLimits, ChunkSizes

# How far a line is: other pieces may come, all have come, all have been delivered, or it ended at its frame limit.
OPEN, COMPLETE, ENDED, CUT = range(4)
NO_CODES = torch.zeros(0, CODE_GROUPS, dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a codec step for one line: a chunk, the end of its current piece, or an error."""

    number: int  # of the line
    chunk: Chunk | None = None
    ends_piece: bool = False
    error: NotFinite | None = None


class LineChunks:
    """The chunks of one line, which the codec knows by ``number``. Its pieces may come while others play.

    ``tokens`` is the line's text, if that is written into its row as it comes.
    """

    def __init__(self, number: int, speech: Speech, parts: LinePieces, sizes: ChunkSizes):
        self.number, self.speech, self.sizes = number, speech, sizes
        self.reference = speech.line.voice.ref_codes  # int64 ``[R, groups]``, of an ICL voice
        self.tokens: TokenFeed | None = None
        self.row: int | None = None
        # The codes and alignment numbers that the codec decodes now.
        self.in_codec: tuple[torch.Tensor, np.ndarray | None] | None = None
        self.piece: Piece | None = None  # the current one; None if the next one has not come
        self._parts, self._index = parts, 0
        self._most = parts.sampling.line_frames or math.inf
        self.joined = LineJoin(parts.model.sample_rate, speech.options.trim_ends)
        self.course = OPEN
        self.frames = 0  # of all chunks so far

    def go_on(self) -> None:
        """Continue with the next piece, if it has come and the one before has ended."""
        if self.piece is not None or self.ended:
            return
        if self._index < len(self._parts.pieces):
            self.piece = self._parts.pieces[self._index]
        elif self.course == COMPLETE:
            self.course = ENDED

    def complete(self, now: float, after_s: float = 0.0) -> Chunk | None:
        """Note that no piece follows; return the line's last chunk if all have ended. ``after_s``: silence after it."""
        if self.frames >= self._most:
            return None
        self.course = COMPLETE
        self.go_on()
        self.joined.after_s = after_s
        samples = self.joined.limit(len(self._parts.pieces) - self._index)
        return self._chunk(NO_CODES, [samples], now) if self.ended else None

    def cancel(self) -> None:
        if not self.ended:
            for piece in self._parts.pieces[self._index :]:
                piece.frames.cut(piece.decoded)
            self.piece, self.course = None, ENDED

    @property
    def ended(self) -> bool:
        return self.course >= ENDED

    @property
    def is_starved(self) -> bool:
        """Whether it waits for text: no frame of it comes soon."""
        return self.tokens is not None and self.tokens.starved

    @property
    def has_codes(self) -> bool:
        """Whether the current piece has codes, decoded or not, or has ended."""
        return self.piece is not None and (len(self.piece.frames) > 0 or self.piece.ended is not None)

    def missing(self, all_of_largest: bool) -> int | None:
        """Return the frames that the next chunk still lacks: nothing is due before, unless a reader runs dry.

        ``all_of_largest``: the next chunk has the largest size, as with many lines. None if more may be due at any
        time: before the first audio, if the piece has ended or not come, or if its text may run out.
        """
        piece, sizes = self.piece, self.sizes
        if piece is None or piece.ended is not None or not sizes.has_begun:
            return None
        if self.in_codec is not None or not (self.tokens is None or self.tokens.done):
            return None
        size = sizes.largest if all_of_largest else sizes.full
        return int(max(0, min(size, self._most - self.frames) - piece.waiting))

    def due(self, now: float, limits: ChunkLimits | None = None, hurry: bool = False) -> tuple[int, bool]:
        """Return how many waiting frames of the current piece to decode now, and whether they are urgent.

        ``limits``: if many lines share the codec; ``hurry``: no other frames come soon.
        """
        if (piece := self.piece) is None or self.in_codec is not None:
            return 0, False
        left = self._most - self.frames
        waiting = int(min(len(piece.frames) - piece.decoded, left))
        is_over = piece.ended is not None or waiting == left
        if is_over or hurry or (self.tokens is not None and self.tokens.starved):
            return min(waiting, self.sizes.largest if is_over and limits else self.sizes.full), True
        return self.sizes.due(waiting, now, limits)

    def take(self, count: int) -> torch.Tensor:
        """Return the codes of the current piece's next frames, ``[count, 16]``; ``add`` accepts their samples."""
        assert self.piece is not None
        begin = self.piece.decoded
        self.in_codec = self.piece.frames.copied(begin, begin + count)
        return self.in_codec[0]

    def end_piece(self, now: float) -> Output | None:
        """End the current piece if its codes are complete and all of them have samples; None if not."""
        piece = self.piece
        if piece is None or piece.ended is None or self.in_codec is not None or piece.waiting:
            return None
        self.in_codec = NO_CODES, None
        return self.add(NO_SAMPLES, now)

    def add(self, wave: np.ndarray, now: float) -> Output | None:
        """Accept the samples of codes that ``take`` returned; None if the line has been cancelled meanwhile."""
        decoding, self.in_codec = self.in_codec, None
        if decoding is None or (piece := self.piece) is None:
            return None
        (codes, numbers), join = decoding, self.joined
        parts = [] if piece.decoded else [join.begin_piece(piece.pause_s)]
        self.frames += len(codes)
        piece.decoded += len(codes)
        piece.waves.append(wave)
        parts.append(join.add(wave))
        if piece.ended is not None and not piece.waiting:  # its end comes with its last frames
            parts.append(join.end())
            self.piece, self._index = None, self._index + 1
            self.go_on()
        if self.frames >= self._most:
            parts += self._cut()
        words = None
        if numbers is not None:
            place = join.places[-1] + join.offset
            words = ChunkTrace(numbers, len(join.places) - 1, place, piece.text)
        has_samples = len(codes) or self.ended or any(map(len, parts))
        chunk = self._chunk(codes, parts, now, words) if has_samples else None
        return Output(self.number, chunk, self.piece is not piece)

    def _cut(self) -> list[np.ndarray]:
        """End the line at its limit; return the samples held back. No silence follows."""
        self.joined.after_s, course = 0.0, self.course
        has_begun = self.piece is not None and self.piece.decoded > 0
        parts = [self.joined.limit(1), self.joined.end()] if has_begun else [self.joined.limit(0)]
        self.cancel()
        self.course = ENDED if course == ENDED else CUT
        return parts

    def _chunk(
        self, codes: torch.Tensor, parts: list[np.ndarray], now: float, words: ChunkTrace | None = None
    ) -> Chunk:
        start, is_last = self.joined.taken, self.ended
        samples = self.joined.take(parts, is_last)
        chunk = Chunk(codes, samples, start, is_last, words=words)
        self.sizes.deliver(len(codes), len(samples) / self._parts.model.sample_rate, now)
        return chunk

"""Turn one line's codes into chunks: pieces in order, chunk sizes, crossfades."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import numpy as np
import torch

from ....postprocess.ends import EndTrim
from ....postprocess.stream_join import StreamJoin
from ...options import GenerateOptions
from ...speech.joined import CROSSFADE_MS
from ...speech.piece import NO_SAMPLES, Piece, concatenate
from ...voice.voice import CODE_GROUPS
from ..speech import Chunk, ChunkTrace
from .claims import Claim, Pace
from .pacing import ChunkSizes

NO_CODES = torch.zeros(0, CODE_GROUPS, dtype=torch.int64)


class PiecePlaces:
    """Where each piece that is not very short begins in the joined samples; ``fade`` is in samples."""

    def __init__(self, fade: int):
        self.index, self.start = -1, 0
        self._fade, self._length = fade, 0

    def begin(self, silence: int) -> None:
        fade = 0 if silence or self.index < 0 else min(self._fade, self._length // 2)
        self.start += self._length + silence - fade
        self.index, self._length = self.index + 1, 0

    def add(self, samples: int) -> None:
        self._length += samples


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
        self._sizes, self._sample_rate, self._text_of = sizes, sample_rate, text_of
        self._pieces: deque[Piece] = deque()
        fade = round(CROSSFADE_MS / 1000 * sample_rate)
        self._join = StreamJoin(None, fade)
        self._trim = EndTrim(sample_rate) if options.trim_ends else None
        self._complete = False
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
        self._pieces.append(piece)

    def complete(self, now: float, silence: int = 0) -> Chunk | None:
        """Note that no piece follows; return the line's last chunk if all have ended. ``silence``: samples after it."""
        if not self._left:
            return None
        self._complete, self._after = True, silence
        samples = self._join.limit(len(self._pieces))
        return self._chunk(NO_CODES, [samples], now) if self.ended else None

    def cancel(self) -> None:
        for piece in self._pieces:
            piece.drop_waiting()
        self._pieces.clear()
        self._complete = True

    @property
    def piece(self) -> Piece | None:
        """The current piece; None if the line has ended or its next piece has not come."""
        return self._pieces[0] if self._pieces else None

    @property
    def ended(self) -> bool:
        return self._complete and not self._pieces

    @property
    def piece_is_done(self) -> bool:
        return self.piece is not None and self.piece.ended is not None and not self.piece.waiting

    @property
    def has_begun(self) -> bool:
        return self._sizes.has_begun

    @property
    def has_codes(self) -> bool:
        """Whether the current piece has codes, decoded or not, or has ended."""
        return self.piece is not None and (len(self.piece.frames) > 0 or self.piece.ended is not None)

    @property
    def waits_for_sound(self) -> bool:
        return not self.has_begun and self.piece is not None and self.piece.waiting > 0

    @property
    def next_size(self) -> int:
        return self._sizes.full

    @property
    def empty_at(self) -> float:
        return self._sizes.empty_at

    def missing(self, all_of_largest: bool) -> int | None:
        """Return the frames that the next chunk still lacks: nothing is due before, unless a reader runs dry.

        ``all_of_largest``: the next chunk has the largest size, as with many lines. None if more may be due at any
        time: before the first audio, or if the piece has ended or not come.
        """
        piece = self.piece
        if piece is None or piece.ended is not None or not self.has_begun:
            return None
        size = self._sizes.largest if all_of_largest else self._sizes.full
        return int(max(0, min(size, self._left) - piece.waiting))

    def due(self, now: float, hurry: bool) -> int:
        """Return how many waiting frames of the current piece to decode now. ``hurry``: no others come soon."""
        if (piece := self.piece) is None:
            return 0
        waiting = self._waiting(piece)
        hurry = hurry or piece.ended is not None or waiting == self._left
        return min(waiting, self._sizes.full) if hurry else self._sizes.due(waiting, now)

    def claim(self, now: float, pace: Pace, line: int) -> Claim | None:
        """Return what to decode of the current piece when many lines share the codec, or None. ``line``: its number."""
        if (piece := self.piece) is None or not (waiting := self._waiting(piece)):
            return None
        if piece.ended is not None or waiting == self._left:
            count, is_urgent = min(waiting, self._sizes.largest), True
        else:
            count, is_urgent = self._sizes.patient(waiting, now, pace)
        if not count:
            return None
        return Claim(line, count, not self.has_begun, is_urgent, self._sizes.empty_at)

    def _waiting(self, piece: Piece) -> int:
        return int(min(piece.waiting, self._left))

    def waiting(self, count: int) -> torch.Tensor:
        """Return the codes of the current piece's next frames, ``[count, 16]``."""
        piece = self._pieces[0]
        return piece.frames.codes(piece.decoded, piece.decoded + count)

    def add(self, codes: torch.Tensor, wave: np.ndarray, now: float) -> Chunk:
        """Accept the samples of codes that ``waiting`` returned; return the chunk for the reader."""
        piece = self._pieces[0]
        if not piece.decoded:
            self._places.begin(piece.silence)
        self._places.add(len(wave))
        begin = piece.decoded
        piece.decoded += codes.shape[0]
        numbers = piece.frames.reported(begin, piece.decoded)
        self._left -= codes.shape[0]
        piece.waves.append(wave)
        parts = [self._pause(piece), self._join.add(wave)]
        if self.piece_is_done:  # its end comes with its last frames
            parts.append(self._join.end())
            self._pieces.popleft()
        if not self._left:
            parts += self._cut()
        return self._chunk(codes, parts, now, None if numbers is None else (begin, numbers))

    def _cut(self) -> list[np.ndarray]:
        """End the line at its limit; return the samples held back. No silence follows."""
        self._after = 0
        self.is_cut = bool(self._pieces) or not self._complete
        if self.piece is not None and self.piece.decoded:
            parts = [self._join.limit(1), self._join.end()]
        else:
            parts = [self._join.limit(0)]
        self.cancel()
        return parts

    def end_piece(self, now: float) -> Chunk | None:
        """End a piece whose end came after its last frames; return a chunk unless it would be empty."""
        piece = self._pieces.popleft()
        if not piece.decoded:
            self._places.begin(piece.silence)
        parts = [self._pause(piece), self._join.end()]
        return self._chunk(NO_CODES, parts, now) if any(map(len, parts)) or self.ended else None

    def _pause(self, piece: Piece) -> np.ndarray:
        silence, piece.silence = piece.silence, 0
        return self._join.gap(silence) if silence else NO_SAMPLES

    def _chunk(
        self,
        codes: torch.Tensor,
        parts: list[np.ndarray],
        now: float,
        reported: tuple[int, np.ndarray] | None = None,
    ) -> Chunk:
        """Return a chunk; ``reported``: its first frame's index in the piece, and the numbers of its frames."""
        samples = self._finish(concatenate(parts))
        words = None if reported is None else self._words(*reported)
        chunk = Chunk(codes, samples, self._start, self.ended, words=words)
        self._start += len(samples)
        self._sizes.deliver(codes.shape[0], len(samples) / self._sample_rate, now)
        return chunk

    def _words(self, frame: int, numbers: np.ndarray) -> ChunkTrace:
        place, trimmed = self._places, 0 if self._trim is None else self._trim.start
        begin = self._lead + place.start - trimmed
        return ChunkTrace(numbers, place.index, frame, begin, self._text_of(place.index))

    def _finish(self, samples: np.ndarray) -> np.ndarray:
        parts = [samples if self._trim is None else self._trim.add(samples)]
        if self._before:
            parts.insert(0, np.zeros(self._before, dtype=np.float32))
            self._before = 0
        if self.ended:
            if self._trim is not None:
                parts.append(self._trim.end())
            parts.append(np.zeros(self._after, dtype=np.float32))
        return concatenate(parts)

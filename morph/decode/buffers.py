"""The frames of all rows in arrays, and the criteria by which lines end, without a Python call per line and frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..words.alignment import SCALE
from ..words.guard import WordGuard
from .rows import ALIGNMENT, BROKEN, EOS, FLAG, REPORT_WIDTH, WORDS, Decoded, Frame, Guard

# A loop is five seconds in which group 0 repeats with one period. Sustained sounds and silence stay below it.
LOOP_WINDOW = 64
LONGEST_PERIOD = 16
LOOP_AGREEMENT = 0.97
FIRST_ROOM = 64  # frames; room doubles from here
PERIODS = np.arange(1, LONGEST_PERIOD + 1)
LEAST_AGREED = LOOP_AGREEMENT * LOOP_WINDOW
NO_FRAMES = np.zeros((0, REPORT_WIDTH), dtype=np.int32)


class RowBuffers:
    """The frames of the lines in an engine's rows, one array entry per row.

    A tensor per frame would burden the garbage collector: with 256 lines of a minute each, it stopped the process for
    100 ms and more, repeatedly.
    """

    def __init__(self, rows: int, eos: int):
        self._eos = eos
        self.frames = np.zeros((rows, FIRST_ROOM, REPORT_WIDTH), dtype=np.int32)
        self.counts = np.zeros(rows, dtype=np.int64)
        self.appended = 0  # lines that got a frame the last time
        self.caps = np.zeros(rows, dtype=np.int64)
        self._detects = np.zeros(rows, dtype=bool)
        # Whether each frame of the window has the code that is p + 1 frames before it, and how many have.
        self._agreed = np.zeros((rows, LOOP_WINDOW, LONGEST_PERIOD), dtype=bool)
        self._agreements = np.zeros((rows, LONGEST_PERIOD), dtype=np.int64)
        self._seen = self.caps, self._detects, self._agreed, self._agreements
        self._words: dict[int, WordGuard] = {}  # of the rows that have one

    def begin(self, row: int, guard: Guard, words: WordGuard | None = None) -> None:
        self.counts[row], self.caps[row], self._detects[row] = 0, guard.max_frames, guard.detect_loops
        self._agreed[row], self._agreements[row] = False, 0
        if words is not None:
            self._words[row] = words

    def append(self, frame: Frame) -> list[tuple[int, str]]:
        """Add a frame; return the rows whose lines end with it, and how. An EOS and a broken frame are dropped."""
        rows, report = frame.rows, frame.report
        ended: list[tuple[int, str]] = []
        is_over = (report[:, FLAG] != 0) | (report[:, 0] == self._eos)
        if np.count_nonzero(is_over):  # fewer calls than ``any``
            broken = (report[is_over, FLAG] != 0).tolist()
            ended = [(row, BROKEN if bad else EOS) for row, bad in zip(rows[is_over].tolist(), broken, strict=True)]
            rows, report = rows[~is_over], report[~is_over]
        self.appended = len(rows)
        if not self.appended:
            return ended
        at = self.counts[rows]
        if at.max() >= self.frames.shape[1]:
            self.frames = np.concatenate((self.frames, np.zeros_like(self.frames)), axis=1)
        self.frames[rows, at] = report
        self.counts[rows] = at + 1
        loops = self._find_loops(rows, at, report[:, 0])
        stops = loops | (at + 1 >= self.caps[rows])
        if np.count_nonzero(stops):
            kinds = np.where(loops, "loop", "cap")
            ended += zip(rows[stops].tolist(), kinds[stops].tolist(), strict=True)
        return self._find_words(frame, ended) if self._words else ended

    def _find_loops(self, rows: np.ndarray, at: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Compare new codes with the ones before; return where one period fills the window."""
        before = at[:, None] - PERIODS
        agrees = (self.frames[rows[:, None], np.maximum(before, 0), 0] == codes[:, None]) & (before >= 0)
        place = at % LOOP_WINDOW
        counts = self._agreements[rows] + agrees - self._agreed[rows, place]
        self._agreed[rows, place], self._agreements[rows] = agrees, counts
        found: np.ndarray = counts.max(axis=1) >= LEAST_AGREED
        if np.count_nonzero(found):
            found &= (at + 1 >= LOOP_WINDOW + LONGEST_PERIOD) & self._detects[rows]
        return found

    def _find_words(self, frame: Frame, ended: list[tuple[int, str]]) -> list[tuple[int, str]]:
        ends = dict(ended)
        for row, report in zip(frame.rows.tolist(), frame.report, strict=True):
            words = self._words.get(row)
            if words is None or ends.get(row) in (EOS, BROKEN):
                continue
            token, weight, _ = report[ALIGNMENT:].tolist()
            if words.take(max(token, 0) - 1, weight / SCALE) is not None:
                ends[row] = WORDS
        return list(ends.items())

    def release(self, row: int) -> np.ndarray:
        """Forget a row's line; return a copy of its frames, int32 ``[T, REPORT_WIDTH]``."""
        frames = self.frames[row, : self.counts[row]].copy()
        self.counts[row] = 0
        self._words.pop(row, None)
        return frames

    def leave(self, row: int) -> tuple[np.ndarray, list[np.ndarray], WordGuard | None]:
        """Forget a row's line; return its frames, and the state of its stop criteria, for ``enter``."""
        words = self._words.get(row)
        return self.release(row), [one[row].copy() for one in self._seen], words

    def enter(self, row: int, frames: np.ndarray, seen: Sequence[np.ndarray], words: WordGuard | None) -> None:
        """Go on with a line that has left a row of these buffers."""
        self.counts[row] = len(frames)
        self.frames[row, : len(frames)] = frames
        for one, values in zip(self._seen, seen, strict=True):
            one[row] = values
        if words is not None:
            self._words[row] = words


class LineFrames:
    """The frames of one take of a piece: in its row while it is decoded, then by themselves.

    Other threads may ask for the length.
    """

    def __init__(self) -> None:
        self._frames = NO_FRAMES
        self._place: tuple[RowBuffers, int] | None = None

    def __len__(self) -> int:
        if (place := self._place) is None:
            return len(self._frames)
        return int(place[0].counts[place[1]])

    def enter(self, buffers: RowBuffers, row: int) -> None:
        self._place = buffers, row

    def leave(self, frames: np.ndarray) -> None:
        self._frames, self._place = frames, None

    def codes(self) -> torch.Tensor:
        """Return a copy of all codes, int64 ``[T, 16]``."""
        return torch.from_numpy(self._all[:, :FLAG].astype(np.int64))

    def copied(self, begin: int, end: int) -> tuple[torch.Tensor, np.ndarray | None]:
        """Return copies of some frames' codes, int64 ``[n, 16]``, and alignment numbers, None without a head."""
        frames = self._all[begin:end]
        codes, numbers = frames[:, :FLAG].astype(np.int64), frames[:, ALIGNMENT:].astype(np.int64)
        return torch.from_numpy(codes), numbers if np.count_nonzero(numbers) else None

    def decoded(self, ended: str) -> Decoded:
        return Decoded.of(self._all, ended)

    def cut(self, count: int) -> None:
        """Drop the frames after the first ``count``."""
        self._frames, self._place = self._all[:count].copy(), None

    @property
    def _all(self) -> np.ndarray:
        if (place := self._place) is None:
            return self._frames
        buffers, row = place
        return buffers.frames[row, : buffers.counts[row]]

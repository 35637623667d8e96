"""What a stream's worker hands to its readers: chunks by line, the result, or the error."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..runtime.bell import Bell
from ..speech.lines import Spoken


@dataclass(frozen=True, eq=False)
class Chunk:
    """Samples of one line that are final, and the frames that were decoded for them.

    Args:
        line: index of the line in the list of the stream.
        codes: int64 ``[n, 16]``; n may be 0 at the end of a piece.
        samples: float32, 1,920 per frame except where a crossfade between pieces holds some back or overlaps them.
        start: index of the first sample in the line's waveform.
        last: whether the line ends with this chunk, which may be empty.
    """

    line: int
    codes: torch.Tensor
    samples: np.ndarray
    start: int
    last: bool

    @property
    def frames(self) -> int:
        """How many frames were decoded for it."""
        return self.codes.shape[0]


class StreamClosed(Exception):
    """The readers of a stream have left; it ends the worker and is raised to nobody else."""


class Channel:
    """Queues of chunks between one worker and any number of readers, one queue per line. Nobody polls.

    Args:
        lines: how many.
    """

    def __init__(self, lines: int):
        # Set when a reader has done something, or text has come: what the worker waits for when it has nothing to do.
        self.bell = Bell()
        self._changed = threading.Condition()
        self._queues: list[deque[tuple[int, Chunk]]] = [deque() for _ in range(lines)]
        self._order: deque[tuple[int, int]] = (
            deque()
        )  # (count, line) of what was put; it may have been taken since
        self._queued = [0] * lines  # frames
        self._ended = [False] * lines  # whether the last chunk was put
        self._cancelled: set[int] = set()
        self._failures: dict[int, BaseException] = {}
        self._count = 0
        self._closed = self._done = False
        self.finished: dict[int, Spoken] = {}  # lines that were whole when the stream was closed or failed
        self._spoken: list[Spoken] | None = None
        self._error: BaseException | None = None

    def check_open(self) -> None:
        """Raise StreamClosed if the readers have left."""
        if self._closed:
            raise StreamClosed

    def queued(self, line: int) -> int:
        """Return the frames that wait for the line's reader."""
        return self._queued[line]

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk; never waits."""
        with self._changed:
            if chunk.line in self._cancelled:
                return
            while self._order and self._is_gone(*self._order[0]):
                self._order.popleft()
            self._order.append((self._count, chunk.line))
            self._queues[chunk.line].append((self._count, chunk))
            self._queued[chunk.line] += chunk.frames
            self._ended[chunk.line] = chunk.last
            self._count += 1
            self._changed.notify_all()

    def finish(self, spoken: list[Spoken] | None, error: BaseException | None = None) -> None:
        """End the stream with its result, with an error, or without either where the readers have left."""
        with self._changed:
            self._spoken, self._error, self._done = spoken, error, True
            self._changed.notify_all()

    def fail(self, line: int, error: BaseException) -> None:
        """Note an error of one line, which comes after its last chunk: its reader gets it there.

        Who reads all lines gets it at their end.
        """
        with self._changed:
            self._failures[line] = error
            self._changed.notify_all()

    def break_off(self, line: int, error: BaseException) -> None:
        """End a line here: its reader gets the error after what was queued before it, which has no last chunk."""
        with self._changed:
            self._ended[line] = True
        self.fail(line, error)

    def cancel(self, line: int) -> None:
        """A line's reader leaves: drop what is queued of it, and end its iteration. Nothing, if the line has ended."""
        with self._changed:
            if not self._ended[line]:
                self._cancelled.add(line)
            self._queues[line].clear()
            self._queued[line] = 0
            self._ended[line] = True
            self._changed.notify_all()
        self.bell.set()

    def is_cancelled(self, line: int) -> bool:
        """Return whether a line was cancelled before its end."""
        return line in self._cancelled

    def leave(self) -> None:
        """Nobody refers to the stream any more. Takes no lock: the garbage collector calls it, wherever it runs."""
        self._closed = True
        self.bell.set()

    def close(self) -> None:
        """Readers leave: drop what is queued, and end their iterations."""
        with self._changed:
            self._closed = True
            for line, queue in enumerate(self._queues):
                queue.clear()
                self._queued[line] = 0
            self._changed.notify_all()
        self.bell.set()

    def take(self, lines: Sequence[int]) -> Chunk | None:
        """Wait for the next chunk of any of these lines, in the order they were made; None after their last ones.

        Of all lines, the end is only known when ``finish`` was called: then ``spoken`` exists.

        Raises:
            Exception: the worker's error, or that of a line, after what was queued before it.
        """
        with self._changed:
            while True:
                line = None if self._closed else self._first(lines)
                if line is not None:
                    _, chunk = self._queues[line].popleft()
                    self._queued[line] -= chunk.frames
                    return chunk
                if self._error is not None and not self._closed:
                    raise self._error
                if self._closed or self._done or (len(lines) < len(self._queues) and self._all_ended(lines)):
                    self._raise_failure(lines)
                    return None
                self._changed.wait()

    def _first(self, lines: Sequence[int]) -> int | None:
        """Return which of these lines has the chunk that was put first, or None if none has any."""
        if len(lines) < len(self._queues):
            filled = [line for line in lines if self._queues[line]]
            return min(filled, key=lambda line: self._queues[line][0][0], default=None)
        # Of all lines, without a look at each: a reader of many would take longer than the codec.
        while self._order and self._is_gone(*self._order[0]):
            self._order.popleft()
        return self._order[0][1] if self._order else None

    def _is_gone(self, count: int, line: int) -> bool:
        """Return whether the chunk put as number ``count`` has been taken or dropped."""
        queue = self._queues[line]
        return not queue or queue[0][0] > count

    def _raise_failure(self, lines: Sequence[int]) -> None:
        failures = [self._failures[line] for line in lines if line in self._failures]
        if failures and not self._closed:
            raise failures[0]

    def _all_ended(self, lines: Sequence[int]) -> bool:
        return all(self._ended[line] for line in lines)

    def spoken(self) -> list[Spoken]:
        """Return the result.

        Raises:
            RuntimeError: if the stream has not ended, or was closed before its end.
            Exception: the worker's error.
        """
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._spoken is None:
                why = "was closed before its end" if self._closed else "has not ended"
                raise RuntimeError(f"the stream {why}: read all chunks, then ask for what was spoken")
            return self._spoken

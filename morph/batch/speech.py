"""A line that is spoken, as its caller holds it: chunks while they are made, and the result."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..options import GenerateOptions
from ..runtime.bell import Bell
from ..speech.lines import Line, LineReport, PieceSpan, Spoken
from ..speech.progress import Progress
from ..words.trace import Trace

log = logging.getLogger(__name__)

QUEUED_FRAMES = 50  # of a line: 4 s. Beyond them codes wait, until the reader has taken a chunk


class OutOfService(Exception):
    """Who speaks can speak no line any more, such as a server that is gone: all that have not ended fail with it."""


@dataclass(frozen=True, eq=False)
class ChunkTrace:
    """Which text token the frames of a chunk are on; they are of one piece.

    Args:
        numbers: what engines reported of its frames (``words/trace.py``).
        piece: index of the piece in the line.
        frame: index of the first of these frames in the piece.
        begin: index of the first sample of the piece's first frame in the line's waveform; it may be before the piece's
            sound, which is trimmed, and within a crossfade.
        text: of the piece, as it is spoken; of text that comes late, what there is of it.
    """

    numbers: np.ndarray
    piece: int
    frame: int
    begin: int
    text: str

    @property
    def trace(self) -> Trace:
        """They as a trace, made where it is asked for: few readers do."""
        trace = Trace.from_numbers(self.numbers)
        assert trace is not None
        return trace


@dataclass(frozen=True, eq=False)
class Chunk:
    """Samples of one line that are final, and the frames that were decoded for them.

    Args:
        codes: int64 ``[n, 16]``; n may be 0 at the end of a piece.
        samples: float32, 1,920 per frame except where a crossfade between pieces holds some back or overlaps them.
        start: index of the first sample in the line's waveform.
        last: whether the line ends with this chunk, which may be empty.
        line: index of the line, where several are read together.
        words: which text token its frames are on; None without frames, and where the checkpoint does not say it.
    """

    codes: torch.Tensor
    samples: np.ndarray
    start: int
    last: bool
    line: int = 0
    words: ChunkTrace | None = None

    @property
    def frames(self) -> int:
        """How many frames were decoded for it."""
        return self.codes.shape[0]


@dataclass(frozen=True)
class Delivery:
    """How a line reaches its reader.

    Args:
        live: its sound is read while it is made, chunk by chunk. If not, it is made complete, which takes less of the
            device, and nothing comes before its end unless ``Speech.hear`` asks for it.
        order: lines of a lower order get rows first; of the same order, those that came first.
        keep: whether ``Speech.result`` is wanted. If not, nothing of a line is kept after its chunks,
            and a batch speaks no piece again. Of a line that is made complete the one chunk is its sound.
        on_change: called after each chunk and at the end, in the thread that speaks or in one that queues another
            line; it must not wait. What it raises ends this line, as its error, and no other.
        heard_later: whether ``Speech.hear`` may ask for the sound of a line that is not live. A server has to be told
            when the line is sent: it makes others complete, and their sound comes at their end.
        held_s: seconds of its sound that are held back on the way to who hears it, as an encoder's delay: its chunks
            are made that much sooner.
    """

    live: bool = True
    order: int = 0
    keep: bool = True
    on_change: Callable[[], None] | None = None
    heard_later: bool = False
    held_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """How a line ended.

    Args:
        report: how it went; None if it failed before there was anything to say.
        spoken: the line, where that was wanted (``Delivery.keep``).
        error: why it failed.
        text_tokens: of what was spoken.
        spans: its pieces, where it was made complete; those of ``spoken``, also where that was not wanted.
    """

    report: LineReport | None = None
    spoken: Spoken | None = None
    error: BaseException | None = None
    text_tokens: int = 0
    spans: tuple[PieceSpan, ...] = ()


class ChunkQueue:
    """The chunks that wait for their reader.

    ``frames``: how many were decoded for them; ``has_begun``: whether there was any chunk.
    """

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self.frames, self.has_begun = 0, False

    def __len__(self) -> int:
        return len(self._chunks)

    def put(self, chunk: Chunk) -> None:
        """Add a chunk."""
        self._chunks.append(chunk)
        self.frames, self.has_begun = self.frames + chunk.frames, True

    def take(self) -> Chunk:
        """Remove the first chunk, and return it."""
        chunk = self._chunks.popleft()
        self.frames -= chunk.frames
        return chunk

    def clear(self) -> None:
        """Drop all chunks."""
        self._chunks.clear()
        self.frames = 0


class Speech:
    """One line that is spoken: an iterator over its chunks, for one reader. Any thread may hold it.

    Args:
        line: what is spoken.
        options: how.
        delivery: how it reaches its reader.
        bell: rung when the reader has done something.
    """

    def __init__(self, line: Line, options: GenerateOptions, delivery: Delivery, bell: Bell):
        self.line, self.options, self.bell = line, options, bell
        # Without the callback: a reader refers to this, and neither would be freed without the garbage collector.
        self.delivery = replace(delivery, on_change=None)
        self.is_heard = delivery.live  # whether its sound is wanted while it is made
        self.is_cancelled = False  # whether its reader has left
        self.is_coded = False  # whether it needs no row, as only samples are missing
        self.progress = Progress()  # frames
        self._changed = threading.Condition()
        self._chunks = ChunkQueue()
        self._outcome: Outcome | None = None
        self._on_change = delivery.on_change or _nothing

    @property
    def is_live(self) -> bool:
        """Whether its sound is made while it is spoken: it is heard, or its text comes in parts."""
        return self.is_heard or not isinstance(self.line.text, str)

    # The reader's side

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        if (chunk := self.take()) is None:
            raise StopIteration
        return chunk

    @property
    def ready(self) -> bool:
        """Whether ``take`` returns at once."""
        with self._changed:
            return self._is_ready

    @property
    def _is_ready(self) -> bool:
        return bool(self._chunks) or self._outcome is not None or self.is_cancelled

    @property
    def ended(self) -> bool:
        """Whether ``result`` returns, or raises, at once."""
        return self._outcome is not None

    @property
    def has_chunk(self) -> bool:
        """Whether a chunk waits for its reader."""
        return bool(self._chunks)

    def take(self) -> Chunk | None:
        """Wait for the next chunk; None after the last one, and after ``cancel``.

        Raises:
            Exception: the error that ended the line, after what was made before it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_ready)
            if not self._chunks:
                self.check()
                return None
            chunk = self._chunks.take()
            # After it: who speaks looks at once whether the reader still has enough, and is not told again.
            self.bell.set()
            return chunk

    def hear(self) -> None:
        """Want the line's sound while it is made, from now on; too late if its samples are being made complete."""
        self.is_heard = True
        self.bell.set()

    def cancel(self) -> None:
        """Leave: what is queued is dropped, and the line's row is free within a frame. Waits for nothing."""
        with self._changed:
            self.is_cancelled = True
            self._chunks.clear()
            self._changed.notify_all()
        self.bell.set()

    close = cancel  # for ``contextlib.closing``

    def result(self) -> Spoken:
        """Wait for the line's end and return it, its best take; the chunks may be of the first one.

        Chunks that were not read are dropped. A line that was cancelled has what was made of it.

        Raises:
            Exception: the error that ended the line.
            RuntimeError: if it was not to be kept (``Delivery.keep``).
        """
        while not self.ended and not self.is_cancelled and self.take() is not None:
            pass
        with self._changed:
            self._changed.wait_for(lambda: self._outcome is not None)
        self.check()
        return self.made

    def check(self) -> None:
        """Raise the error that ended the line, if there is one."""
        if self._outcome is not None and self._outcome.error is not None:
            raise self._outcome.error

    @property
    def failed(self) -> bool:
        """Whether an error has ended the line."""
        return self._outcome is not None and self._outcome.error is not None

    @property
    def made(self) -> Spoken:
        """What was made of a line that has ended, also of one that failed after its beginning.

        Raises:
            Exception: the error that ended the line, if nothing was made.
            RuntimeError: if it was not to be kept (``Delivery.keep``).
        """
        assert self._outcome is not None
        if self._outcome.spoken is None:
            self.check()
            raise RuntimeError("the line was not kept: speak it with Delivery(keep=True)")
        return self._outcome.spoken

    @property
    def report(self) -> LineReport:
        """How the line went, once it has ended; of a line that was cancelled before, as far as it went.

        Raises:
            RuntimeError: if it has not ended.
            Exception: the error that ended it.
        """
        self.check()
        if self._outcome is None or self._outcome.report is None:
            raise RuntimeError("the line has not ended: read its chunks first")
        return self._outcome.report

    @property
    def text_tokens(self) -> int:
        """The tokens of what was spoken, once the line has ended."""
        return 0 if self._outcome is None else self._outcome.text_tokens

    @property
    def spans(self) -> tuple[PieceSpan, ...]:
        """The pieces of a line that was made complete, once it has ended."""
        return () if self._outcome is None else self._outcome.spans

    # The side of who speaks

    @property
    def queued(self) -> int:
        """The frames that wait for the reader."""
        return self._chunks.frames

    @property
    def has_begun(self) -> bool:
        """Whether there was sound."""
        return self._chunks.has_begun

    @property
    def is_full(self) -> bool:
        """Whether the reader has enough for now."""
        return self._chunks.frames >= QUEUED_FRAMES and not self.is_cancelled

    def note_coded(self, is_coded: bool) -> None:
        """Note that all codes of a complete line are there, or that it needs a row again."""
        self.is_coded = is_coded

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk; never waits."""
        with self._changed:
            if self.is_cancelled:
                return
            self._chunks.put(chunk)
            self._changed.notify_all()
        self._tell()

    def _tell(self) -> None:
        """Call ``on_change``: it is the caller's, and what it raises is nobody else's."""
        try:
            self._on_change()
        except Exception as error:
            log.warning(
                "on_change of the line %.40r raised: the line is ended", self.line.text, exc_info=error
            )
            self._on_change = _nothing
            self.cancel()
            self.finish(Outcome(error=error))

    def finish(self, outcome: Outcome) -> None:
        """End the line, once."""
        with self._changed:
            if self._outcome is not None:
                return
            self._outcome = outcome
            self._changed.notify_all()
        self._tell()
        self._on_change = _nothing

    def fail(self, error: BaseException) -> None:
        """End the line with an error."""
        self.finish(Outcome(error=error))


def _nothing() -> None:
    """Tell nobody."""

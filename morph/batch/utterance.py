"""A line that a ``SpeechService`` speaks, as its caller holds it: chunks, an end, a report."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from ..options import GenerateOptions
from ..runtime.bell import Bell
from ..speech.lines import Line, LineReport
from ..speech.text_reader import TextReader
from .channel import Chunk
from .stream_decoding import QUEUED_FRAMES

log = logging.getLogger(__name__)

Group: TypeAlias = tuple[object, ...]
"""What all lines of one running batch have in common."""


class Parked(Protocol):
    """A line that has begun and waits between two pieces, without a row and a state in the codec."""

    @property
    def is_made(self) -> bool:
        """Whether all of its codes are there, so that a batch of any group can make its samples."""

    @property
    def lacks_text(self) -> bool:
        """Whether it has nothing to speak before more of its text comes."""

    def abandon(self) -> None:
        """The reader has left."""


def group_of(options: GenerateOptions) -> Group:
    """Return the group of a line: what a captured frame is made for."""
    return (options.seq_groups, options.decoding, options.tail)


class Utterance:
    """One line of a ``SpeechService``: an iterator over its chunks, for one reader.

    Args:
        line: what is spoken.
        options: how.
        group: see ``group_of``.
        bell: set when the reader has done something.
        on_change: called after each chunk and at the end, in the service's thread or in one that queues another line;
            it must not wait. What it raises ends this line, as its error, and no other.
    """

    def __init__(
        self,
        line: Line,
        options: GenerateOptions,
        group: Group,
        bell: Bell,
        on_change: Callable[[], None] | None = None,
    ):
        self.line, self.options, self.group = line, options, group
        self.bell, self._on_change = bell, on_change or _nothing
        self._changed = threading.Condition()
        self._chunks: deque[Chunk] = deque()
        self._queued = 0  # frames
        self.is_closed = False  # whether the reader has left
        self._done = False
        self._report: LineReport | None = None
        self._error: BaseException | None = None
        self.text_tokens = 0  # of what was spoken, known at the end
        self.parked: Parked | None = None  # its line, while it is at the desk between two pieces
        self.reader = None if isinstance(line.text, str) else TextReader(line.text, bell, line.layout)

    def start(self) -> None:
        """Begin to read a text that comes in parts; nothing else of the line waits for it.

        Raises:
            RuntimeError: if no thread can be started; the line is ended.
        """
        if self.reader is None:
            return
        try:
            self.reader.start()
        except RuntimeError as error:
            self.close()
            raise RuntimeError(
                "no thread can be started for a text that comes in parts: try again later"
            ) from error

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
        return bool(self._chunks) or self._done or self.is_closed

    def take(self) -> Chunk | None:
        """Wait for the next chunk; None after the last one, and after ``close``.

        Raises:
            Exception: the error that ended the line, after what was made before it.
        """
        with self._changed:
            while not self._is_ready:
                self._changed.wait()
            if self._chunks:
                chunk = self._chunks.popleft()
                self._queued -= chunk.frames
                self.bell.set()
                return chunk
            if self._error is not None:
                raise self._error
            return None

    def close(self) -> None:
        """Leave: what is queued is dropped, and the line's row is free within a frame. Waits for nothing."""
        with self._changed:
            self.is_closed = True
            self._chunks.clear()
            self._queued = 0
            self._changed.notify_all()
        self.bell.set()

    @property
    def report(self) -> LineReport:
        """How the line went, once it has ended; of a line that was closed before, as far as it went.

        Raises:
            RuntimeError: if it has not ended.
            Exception: the error that ended it.
        """
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._report is None:
                raise RuntimeError("the line has not ended: read its chunks first")
            return self._report

    # The service's side

    @property
    def queued(self) -> int:
        """The frames that wait for the reader."""
        return self._queued

    @property
    def is_full(self) -> bool:
        """Whether the reader has enough for now."""
        return self._queued >= QUEUED_FRAMES and not self.is_closed

    @property
    def is_ready(self) -> bool:
        """Whether it can be spoken, or spoken on: there is text, and its reader wants more."""
        if self.parked is not None:
            return not (self.is_full or self.parked.lacks_text)
        return self.reader is None or self.reader.has_news

    @property
    def is_made(self) -> bool:
        """Whether only samples of it are missing."""
        return self.parked is not None and self.parked.is_made

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk; never waits."""
        with self._changed:
            if self.is_closed:
                return
            self._chunks.append(chunk)
            self._queued += chunk.frames
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
            self.close()
            self.finish(None, error)

    def leave(self) -> None:
        """End a line that has no row, because its reader has left."""
        if self.parked is not None:
            self.parked.abandon()
            return
        text = self.line.text if isinstance(self.line.text, str) else ""
        self.finish(LineReport(self.line.name, text, 0, 0.0, "cancelled", 0))

    def finish(self, report: LineReport | None, error: BaseException | None = None) -> None:
        """End the line, once, with its report or with an error."""
        with self._changed:
            if self._done:
                return
            self._report, self._error, self._done = report, error, True
            self._changed.notify_all()
        self._tell()
        # A reader refers to this: with its callback in here neither would be freed without the garbage collector.
        self._on_change = _nothing
        if self.reader is not None:
            self.reader.close()


def _nothing() -> None:
    """Tell nobody."""

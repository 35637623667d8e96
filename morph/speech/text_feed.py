"""The text of a line on its way to pieces: complete, or sentence by sentence as it comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import replace

from .piece import Piece
from .pieces import LineCutter, LinePieces, end_pieces
from .text_reader import TextReader

MOST_STEPS = 100  # without a piece, as of a text without words: then other lines go on


class TextFeed:
    """Adds the pieces of a line one at a time, as they are asked for. Only the batch thread calls it.

    A prompt takes some milliseconds, so a long text must not delay other lines with all of its pieces. Figures take
    far longer: ``executor`` writes them out, one piece ahead, and ``bell`` is called for each. ``reader`` has a text
    that comes in parts: each sentence is normalized and becomes one piece, or several if it is long.
    """

    def __init__(
        self,
        parts: LinePieces,
        executor: Executor,
        bell: Callable[[], None],
        reader: TextReader | None = None,
    ):
        self._parts, self._line, self._reader = parts, parts.line, reader
        self._executor, self._bell = executor, bell
        # The normalizer reads this event. A reference to the text would form a cycle and leave each line to the garbage
        # collector, which stops all threads.
        self._done = threading.Event()
        self.error: BaseException | None = None
        self._cutter = LineCutter(parts.line, parts.limit)
        self._texts = iter(() if reader else (str(parts.line.text),))
        self._cuts: Iterator[Piece] | None = None
        self._pace: Pace | None = None
        self._next: Future[Piece | None] | None = None  # of a text with figures

    @property
    def done(self) -> bool:
        return self._done.is_set()

    @property
    def is_late(self) -> bool:
        return self._reader is not None

    @property
    def is_read(self) -> bool:
        """Whether all of a complete text has been normalized, so that no piece is far."""
        return self._reader is None and not self._cutter.unread

    @property
    def has_news(self) -> bool:
        """Whether ``poll`` would find something to speak, or the end."""
        if self._next is not None:
            return self._next.done()
        return self._cuts is not None or self._reader is None or self._reader.has_news

    def poll(self) -> None:
        """Add the next piece if it is there, or end the line after the last."""
        try:
            self._poll()
        except Exception as error:  # of any kind: it is this line's, and its reader gets it
            self.stop(error)

    def _poll(self) -> None:
        for _ in range(MOST_STEPS):
            if self.done or not self.has_news:
                return
            if self._cuts is None:
                self._begin(self._reader.take() if self._reader else next(self._texts, None))
            elif (piece := self._next_piece(self._cuts)) is not None:
                self._parts.add(piece)
                return
        self._bell()

    def _begin(self, text: str | None) -> None:
        """Begin to cut a text; None: nothing follows, so the line ends."""
        if text is None:
            self.stop(self._reader.error if self._reader else None)
            return
        normalizer = self._parts.normalizer
        if normalizer.is_quick(self._line.as_read(text), self._line.language):
            self._cuts = self._cutter.cut(text, normalizer)
            return
        self._pace = Pace(self._done)
        self._cuts = self._cutter.cut(text, replace(normalizer, on_sentence=self._pace.keep))
        self._ask(self._cuts, self._pace)

    def _ask(self, cuts: Iterator[Piece], pace: Pace) -> None:
        bell = self._bell
        self._next = self._executor.submit(pace.run, cuts)
        self._next.add_done_callback(lambda _: bell())

    def _next_piece(self, cuts: Iterator[Piece]) -> Piece | None:
        if self._next is None or self._pace is None:
            piece = next(cuts, None)
        elif (piece := self._next.result()) is not None:
            self._ask(cuts, self._pace)
        if piece is None:
            self._cuts = self._next = None
        return piece

    def stop(self, error: BaseException | None = None) -> None:
        """End the line with the text that has come, and read no more."""
        if self.done:
            return
        self.error = error
        self._done.set()
        if self._next is not None:
            self._next.cancel()
        if self._reader is not None:
            self._reader.close()
            self._parts.line = replace(self._line, text=self._reader.text)
        self._end(str(self._parts.line.text))

    def _end(self, text: str) -> None:
        parts, is_whole = self._parts, self._cuts is None
        self._cuts = None
        if self._reader is None or (is_whole and self._reader.is_over and self.error is None):
            end_pieces(parts.pieces, self._cutter.silence)
        parts.readings = self._line.find_readings(text)
        parts.said = self._cutter.said(text)


class Pace:
    """Pauses between the steps of a thread, each for as long as the step if other threads waited meanwhile.

    Otherwise a thread of many short operations, as in decoding, gets the GIL up to 5 ms late for each.
    """

    def __init__(self, stopped: threading.Event):
        self._stopped = stopped

    def run(self, pieces: Iterator[Piece]) -> Piece | None:
        self._begin()
        return next(pieces, None)

    def _begin(self) -> None:
        self._began, self._worked = time.monotonic(), time.thread_time()

    def keep(self) -> None:
        """Pause between two steps; raise InterruptedError once the line has stopped."""
        worked = time.thread_time() - self._worked
        waited = time.monotonic() - self._began - worked
        if self._stopped.wait(max(0.0, min(worked, waited))):
            raise InterruptedError("the line was stopped")
        self._begin()

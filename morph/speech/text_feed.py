"""The text of a line on its way to pieces: cut piece by piece, or one piece whose row gets the text as it comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import torch

from ..decode.request import Guard, LatePart
from ..model.tokens import IncrementalTokenizer
from ..text.duration import minimum_frames
from ..text.normalize import NormalizedText
from ..voice.prompt import Prompt, check_context
from .pieces import LinePieces, Piece, build_piece, guard_line
from .text_reader import LONGEST_WORD, TextReader

PIECES_AHEAD = 4  # of a line: faster text is not read beyond them
TOKENS_AHEAD = 250  # of the speech, 20 s: faster text is not read beyond them
MOST_STEPS = 100  # without a piece, as of a text without words: then other lines go on


class TextFeed:
    """Adds the pieces of a line one at a time, as they are asked for. Only the batch thread calls it.

    A prompt takes some milliseconds, so a long text must not delay other lines with all of its pieces. Figures take
    far longer: ``executor`` writes them out, one piece ahead, and ``wake_up`` is called for each. Of late text each
    sentence is normalized and becomes one piece, or several if it is long.
    """

    def __init__(
        self, parts: LinePieces, executor: Executor, wake_up: Callable[[], None], reader: TextReader
    ):
        self._parts, self._line, self._reader = parts, parts.line, reader
        self._executor, self._wake_up = executor, wake_up
        # The normalizer reads this event. A reference to the text would form a cycle and leave each line to the garbage
        # collector, which stops all threads.
        self._done = threading.Event()
        self.error: BaseException | None = None
        self._cuts: Iterator[Piece] | None = None
        self._pace: Pace | None = None
        self._next: Future[Piece | None] | None = None  # of a text with figures

    @property
    def done(self) -> bool:
        return self._done.is_set()

    @property
    def has_news(self) -> bool:
        """Whether ``poll`` would find something to speak, or the end."""
        if self._next is not None:
            return self._next.done()
        return self._cuts is not None or self._reader.has_news

    def is_ahead(self, pieces: int) -> bool:
        """Return whether enough text is read for now; ``pieces`` have no row so far."""
        return pieces >= (PIECES_AHEAD if self._reader.is_late else 2)

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
                self._begin(self._reader.take())
            elif (piece := self._next_piece(self._cuts)) is not None:
                self._parts.add(piece)
                return
        self._wake_up()

    def _begin(self, text: str | None) -> None:
        """Begin to cut a text; None: nothing follows, so the line ends."""
        if text is None:
            self.stop(self._reader.error)
            return
        normalizer = self._parts.normalizer
        if normalizer.is_quick(self._line.as_read(text), self._line.language):
            self._cuts = self._parts.cutter.cut(text, normalizer)
            return
        self._pace = Pace(self._done)
        self._cuts = self._parts.cutter.cut(text, replace(normalizer, on_sentence=self._pace.keep))
        self._ask(self._cuts, self._pace)

    def _ask(self, cuts: Iterator[Piece], pace: Pace) -> None:
        wake_up = self._wake_up
        self._next = self._executor.submit(pace.run, cuts)
        self._next.add_done_callback(lambda _: wake_up())

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
        self._reader.close()
        self._parts.line = replace(self._line, text=self._reader.text)
        self._end()

    def _end(self) -> None:
        is_whole = self._cuts is None and self._reader.is_over and self.error is None
        self._cuts = None
        self._parts.end_text(self._parts.pieces if is_whole or not self._reader.is_late else ())


class TokenFeed(TextFeed):
    """The text of layout "token": one piece, the ``LateText`` of whose request writes text into the running prompt.

    The codes do not depend on when the text comes: a frame is made only when its token is there, or the text has
    ended. If a checkpoint's lines have a minimum length, a frame also waits until the text is long enough to tell.
    """

    def __init__(self, *given: Any):
        super().__init__(*given)
        self._holds_end = self._parts.model.profile.hold_end
        self._ids = IncrementalTokenizer(self._parts.model.texts)
        self._said = ""  # the text so far
        self._piece: Piece | None = None
        self._guard: Guard | None = None
        self._rows: list[torch.Tensor] = []  # of the trailing text, ``[N, H]``, not taken by the engine yet
        self._count = 0  # of all rows so far; each frame needs one
        self._frame = 0  # the last requested one
        self._starved = False

    @property
    def starved(self) -> bool:
        return self._starved and not self.done

    def is_ahead(self, pieces: int) -> bool:
        has_rows = not self._starved and self._count > self._frame + TOKENS_AHEAD
        return has_rows or super().is_ahead(pieces)

    def follow(self, guard: Guard) -> None:
        """Adapt a guard to the text as it grows: the longer it is, the more frames it allows."""
        self._guard = guard
        self._adapt()

    def ready(self, frame: int) -> bool:
        certain = not self._holds_end or frame + 1 < self._prompt.min_frames
        self._frame, self._starved = frame, not (self.done or (frame < self._count and certain))
        return not self._starved

    def take(self) -> LatePart | None:
        rows, self._rows = self._rows, []
        return LatePart(torch.cat(rows), self._prompt.min_frames, self._prompt.text_tokens) if rows else None

    def complete(self) -> None:
        """Prepare another take, with all the text at once: the prompt had only the first token."""
        if self._piece is None:
            return
        self._piece.text = self._said.strip()
        self._piece.made = build_piece(self._parts.builder, self._parts.line, self._piece.text)

    @property
    def _prompt(self) -> Prompt:
        assert self._piece is not None
        return self._piece.prompt

    def _poll(self) -> None:
        if (text := self._reader.take()) is not None:
            self._said += text
            self._extend(self._ids.add(text), self._ids.text)
            if self._ids.held > LONGEST_WORD:
                raise ValueError(
                    f"a word of the text is longer than {LONGEST_WORD} characters: choose layout sentence"
                )
        if self._reader.is_over:
            if self._reader.error is None:
                text = self._said.strip()
                self._extend(self._ids.end(strip=True), text, ended=True)
                assert self._piece is not None
                self._piece.text = text
            self.stop(self._reader.error)

    def _extend(self, ids: Sequence[int], text: str, ended: bool = False) -> None:
        """Add tokens to the prompt; ``text`` is that of all tokens so far."""
        parts, line = self._parts, self._line
        if self._piece is None:
            if not ids:
                return
            prompt = parts.builder.begin(ids[0], line.voice, line.language, line.instruct)
            self._piece = Piece(text, line.seed, made=prompt)
            parts.add(self._piece)
            ids = ids[1:]
        new = len(ids) + ended
        check_context(parts.model, self._prompt.length + self._count + new)
        if new:
            self._rows.append(parts.builder.rows(ids, ended))
            self._count += new
            self._starved = False  # as far as is known before the next frame
        tokens = self._prompt.text_tokens + len(ids)
        minimum = minimum_frames(text, False) if self._holds_end else self._prompt.min_frames
        self._piece.made = replace(self._prompt, text_tokens=tokens, min_frames=minimum)
        self._adapt()

    def _adapt(self) -> None:
        if self._guard is not None:
            longest = guard_line(self._prompt, self._parts.options, self._parts.sampling).max_frames
            self._guard.max_frames = longest

    def _end(self) -> None:
        self._parts.said = NormalizedText(self._reader.text)


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

"""The text of a line on its way to pieces: cut piece by piece, or one piece whose row gets the text as it comes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ..decode.rows import Guard, LatePart
from ..model.tokens import IncrementalTokenizer
from ..runtime.threads import Pace
from ..text.duration import minimum_frames
from ..text.reader import LONGEST_WORD, TextReader
from ..voice.prompt import check_context
from .pieces import LinePieces, Piece, build_piece, guard_line

log = logging.getLogger(__name__)

PIECES_AHEAD = 4  # of a line: faster text is not read beyond them
TOKENS_AHEAD = 250  # of the speech, 20 s: faster text is not read beyond them
MOST_STEPS = 100  # without a piece, as of a text without words: then other lines go on


class TextFeed:
    """Adds the pieces of a line one at a time, as they are asked for. Only the batch thread calls it.

    A prompt takes some milliseconds, so a long text must not delay other lines with all of its pieces. Figures take
    far longer: ``executor`` writes them out, one piece ahead, and ``wake_up`` is called for each. Of late text each
    sentence is normalized and becomes one piece, or several if it is long.
    """

    def __init__(self, parts: LinePieces, executor: Executor, wake_up: Callable[[], None], reader: TextReader):
        self._parts, self._line, self._reader = parts, parts.line, reader
        self._executor, self._wake_up = executor, wake_up
        # The normalizer reads this event. A reference to the text would form a cycle and leave each line to the garbage
        # collector, which stops all threads.
        self._done = threading.Event()
        self._pace = Pace(self._done)
        self.error: BaseException | None = None
        self._cuts: Iterator[Piece] | None = None
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
                if (text := self._reader.take()) is not None:
                    self._begin(text)
                else:
                    self.stop(self._reader.error)
                continue
            piece = next(self._cuts, None) if self._next is None else self._next.result()
            if piece is None:
                self._cuts = self._next = None
                continue
            if self._next is not None:
                self._ask(self._cuts)
            self._parts.add(piece)
            return
        self._wake_up()

    def _begin(self, text: str) -> None:
        normalizer = self._parts.normalizer
        is_quick = normalizer.is_quick(self._line.as_read(text), self._line.language)
        if not is_quick:
            normalizer = replace(normalizer, on_sentence=self._pace.keep)
        self._cuts = self._parts.split(text, normalizer)
        if not is_quick:
            self._ask(self._cuts)

    def _ask(self, cuts: Iterator[Piece]) -> None:
        wake_up, self._next = self._wake_up, self._executor.submit(self._pace.run, partial(next, cuts, None))
        self._next.add_done_callback(lambda _: wake_up())

    def stop(self, error: BaseException | None = None) -> None:
        """End the line with the text that has come, and read no more."""
        if self.done:
            return
        self.error = error
        self._done.set()
        if self._next is not None:
            self._next.cancel()
        self._reader.close()
        parts, self._parts.line = self._parts, replace(self._line, text=self._reader.text)
        is_complete = self._cuts is None and self._reader.is_over and error is None
        self._cuts = None
        parts.end_text(parts.pieces if is_complete or not self._reader.is_late else [])


class TokenFeed(TextFeed):
    """The text of layout "token": one piece, the ``LateText`` of whose request writes text into the running prompt.

    The codes do not depend on when the text comes: a frame is made only when its token is there, or the text has
    ended. If a checkpoint's lines have a minimum length, a frame also waits until the text is long enough to tell.
    """

    def __init__(self, *given: Any):
        super().__init__(*given)
        self._parts.is_literal = True
        self._holds_end = self._parts.model.profile.hold_end
        self._ids = IncrementalTokenizer(self._parts.model.texts)
        self._said = ""  # the text so far
        self._guard: Guard | None = None
        self._rows: list[torch.Tensor] = []  # of the trailing text, ``[N, H]``, not taken by the engine yet
        self._count = 0  # of all rows so far; each frame needs one
        self._frame = -1  # the last requested one

    @property
    def starved(self) -> bool:
        return self._frame >= 0 and not self._has_text(self._frame)

    def is_ahead(self, pieces: int) -> bool:
        has_rows = not self.starved and self._count > self._frame + TOKENS_AHEAD
        return has_rows or super().is_ahead(pieces)

    def follow(self, guard: Guard) -> None:
        """Adapt limits to the text as it grows: the longer it is, the more frames they allow."""
        self._guard = guard
        guard.max_frames = guard_line(self._piece.prompt, self._parts.options, self._parts.sampling).max_frames

    def ready(self, frame: int) -> bool:
        self._frame = frame
        return self._has_text(frame)

    def _has_text(self, frame: int) -> bool:
        is_certain = not self._holds_end or frame + 1 < self._piece.prompt.min_frames
        return self.done or (frame < self._count and is_certain)

    def take(self) -> LatePart | None:
        rows, self._rows, prompt = self._rows, [], self._piece.prompt
        return LatePart(torch.cat(rows), prompt.min_frames, prompt.text_tokens) if rows else None

    def complete(self) -> None:
        """Prepare another take, with all the text at once: the prompt had only the first token."""
        for piece in self._parts.pieces:
            piece.text = self._said.strip()
            piece.prompt = build_piece(self._parts.builder, self._parts.line, piece.text)

    @property
    def _piece(self) -> Piece:
        return self._parts.pieces[0]

    def _poll(self) -> None:
        if (text := self._reader.take()) is not None:
            self._said += text
            self._extend(self._ids.add(text), self._ids.text)
            if self._ids.held > LONGEST_WORD:
                raise ValueError(f"a word of the text is longer than {LONGEST_WORD} characters: choose layout sentence")
        if self._reader.is_over:
            if self._reader.error is None:
                text = self._said.strip()
                self._extend(self._ids.end(strip=True), text, ended=True)
                self._piece.text = text
            self.stop(self._reader.error)

    def _extend(self, ids: Sequence[int], text: str, ended: bool = False) -> None:
        """Add tokens to the prompt; ``text`` is that of all tokens so far."""
        parts, line = self._parts, self._line
        if not parts.pieces:
            if not ids:
                return
            prompt = parts.builder.begin(ids[0], line.voice, line.language, line.instruct)
            parts.add(Piece(text, line.seed), prompt)
            ids = ids[1:]
        new, prompt = len(ids) + ended, self._piece.prompt
        check_context(parts.model, prompt.length + self._count + new)
        if new:
            self._rows.append(parts.builder.rows(ids, ended))
            self._count += new
        tokens = prompt.text_tokens + len(ids)
        minimum = minimum_frames(text, False) if self._holds_end else prompt.min_frames
        self._piece.prompt = replace(prompt, text_tokens=tokens, min_frames=minimum)
        if self._guard is not None:
            self.follow(self._guard)

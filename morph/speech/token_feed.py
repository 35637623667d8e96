"""Layout "token": one piece, whose text is written into the running prompt as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..decode.guard import Guard
from ..decode.request import LatePart
from ..model.tokens import ArrivingIds
from ..text.duration import held_frames
from ..text.normalize import SpokenText
from ..voice.prompt import Prompt, check_context
from .piece import Piece
from .pieces import build_piece, guard_line
from .text_feed import TextFeed
from .text_reader import LONGEST_WORD

TOKENS_AHEAD = 250  # of the speech, 20 s: faster text is not read beyond them


class TokenFeed(TextFeed):
    """The ``LateText`` of its piece's request.

    The codes do not depend on when the text comes: a frame is made only when its token is there, or the text has
    ended. If a checkpoint's lines have a minimum length, a frame also waits until the text is long enough to tell.
    """

    def __init__(self, *given: Any):
        super().__init__(*given)
        self._holds_end = self._parts.model.profile.hold_end
        self._ids = ArrivingIds(self._parts.model.texts)
        self._words: list[str] = []
        self._piece: Piece | None = None
        self._guard: Guard | None = None
        self._rows: list[torch.Tensor] = []  # of the trailing text, ``[N, H]``, not taken by the engine yet
        self._count = 0  # of all rows so far; each frame needs one
        self._frame = 0  # the last requested one
        self._starved = False

    @property
    def starved(self) -> bool:
        """Whether the piece waits for text."""
        return self._starved and not self.done

    @property
    def is_ahead(self) -> bool:
        """Whether enough text has come for now."""
        return not self._starved and self._count > self._frame + TOKENS_AHEAD

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
        self._piece.text = "".join(self._words).strip()
        self._piece.made = build_piece(self._parts.builder, self._parts.line, self._piece.text)

    @property
    def _prompt(self) -> Prompt:
        assert self._piece is not None
        return self._piece.prompt

    def _poll(self) -> None:
        assert self._reader is not None
        if (text := self._reader.take()) is not None:
            self._add(text)
        if self._reader.is_over:
            if self._reader.error is None:
                self._finish()
            self.stop(self._reader.error)

    def _add(self, text: str) -> None:
        self._words.append(text)
        self._extend(self._ids.add(text), self._ids.text)
        if self._ids.held > LONGEST_WORD:
            raise ValueError(
                f"a word of the text is longer than {LONGEST_WORD} characters: choose layout sentence"
            )

    def _finish(self) -> None:
        text = "".join(self._words).strip()
        self._extend(self._ids.end(strip=True), text, ended=True)
        assert self._piece is not None
        self._piece.text = text

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
        minimum = held_frames(text, False) if self._holds_end else self._prompt.min_frames
        self._piece.made = replace(self._prompt, text_tokens=tokens, min_frames=minimum)
        self._adapt()

    def _adapt(self) -> None:
        if self._guard is not None:
            longest = guard_line(self._prompt, self._parts.options, self._parts.sampling).max_frames
            self._guard.max_frames = longest

    def _end(self, text: str) -> None:
        self._parts.said = SpokenText(text)

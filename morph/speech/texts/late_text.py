"""Lines whose text comes in parts: pieces by sentence, or one piece that grows token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from ...decode.guard import Guard
from ...decode.request import LatePart
from ...model.tokens import ArrivingIds
from ...text.arriving import Characters, Sentences
from ...text.duration import held_frames
from ...text.encoding import check_encodable, is_encodable
from ...text.normalize import SpokenText
from ...text.pauses import check_spoken
from ...text.pronunciation import Reading, is_mark_begun, join_marks
from ...text.split import check_text
from ...voice.prompt import Prompt, check_context
from ..piece import Piece
from ..pieces import LinePieces, build_piece, guard_line
from .line_text import LineText
from .text_reader import MOST_UNREAD, TextReader
from .written_pieces import WrittenPieces

LONGEST_WORD = 1000  # characters: each new part rescans the whole word
MOST_HELD = 8  # sentences within one <shown|read>
TOKENS_AHEAD = 250  # of the speech, 20 s: faster text is not read beyond them


class LateLine(LineText):
    """A line whose text comes in parts. Only the decoding thread calls it."""

    def __init__(self, parts: LinePieces, reader: TextReader):
        super().__init__()
        self._parts, self._reader, self._line = parts, reader, parts.line
        self._characters = Characters()
        self._whole = ""
        self._is_finished = False  # whether the text is complete and valid

    def poll(self) -> None:
        """Read what has come and add the pieces that follow from it, one or two at a time."""
        try:
            error = self._poll()
        except Exception as problem:  # of any kind: it is this line's, and its reader gets it
            error = problem
        if error is not None or (self._is_finished and not self._is_behind):
            self.stop(error)

    def _poll(self) -> BaseException | None:
        """Process new text; return the iterator's error, if any."""
        self._advance()
        if self._is_behind or self._is_finished:
            return None
        part, ended, error = self._reader.take()
        text = self._characters.add(part) + (self._characters.end() if ended else "")
        self._whole += text
        if not is_encodable(text):
            check_encodable(self._whole, "text")
        if text:
            self._add(text)
        self._advance()
        if self._is_behind or not ended:
            return None
        if error is None:
            self._check(self._whole)
            self._finish()
            self._is_finished = True
            self._advance()
        return error

    def stop(self, error: BaseException | None = None) -> None:
        """End the line with the text that has come, and read no more."""
        if self._end(error):
            self._reader.close()
            self._parts.line = replace(self._line, text=self._whole)
            self._parts.said, self._parts.readings = self._spoken(), self._readings()

    @property
    def starved(self) -> bool:
        """Whether the current piece waits for text."""
        return False

    @property
    def is_ahead(self) -> bool:
        """Whether enough text has come for now, however many pieces wait."""
        return False

    @property
    def has_news(self) -> bool:
        """Whether ``poll`` would find something to speak, or the end."""
        return self._reader.has_news or self._is_behind

    @property
    def _is_behind(self) -> bool:
        """Whether text that was read is not all in pieces yet: then no more is read."""
        return False

    def complete(self) -> None:
        """Prepare another take, with all the text at once. The line must have ended well."""

    def _check(self, text: str) -> None:
        check_text(text)

    def _add(self, text: str) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    def _advance(self) -> None:
        """Process read text, up to the next piece."""

    def _spoken(self) -> SpokenText:
        return SpokenText(self._whole)

    def _readings(self) -> tuple[Reading, ...]:
        return ()


class SentenceLine(LateLine):
    """Layout "sentence": each sentence is normalized and becomes one piece, or several if it is long."""

    def __init__(self, parts: LinePieces, reader: TextReader):
        super().__init__(parts, reader)
        self._sentences = Sentences()
        self._held: list[str] = []  # sentences that seem to end within <shown|read>
        self._pieces = WrittenPieces(parts, self._done.is_set, reader.bell.set)

    def stop(self, error: BaseException | None = None) -> None:
        if not self.done:
            self._pieces.end(is_whole=self._is_finished and not self._is_behind)
        super().stop(error)

    def _check(self, text: str) -> None:
        check_spoken(text)

    def _add(self, text: str) -> None:
        for sentence in self._sentences.add(text):
            self._take(sentence)

    def _take(self, sentence: str) -> None:
        """Normalize a sentence; one that seems to end within ``<shown|read>`` waits for the next ones."""
        self._held.append(sentence)
        if len(self._held) == MOST_HELD or not is_mark_begun(" ".join(self._held)):
            self._add_held()

    def _add_held(self) -> None:
        for text in join_marks(self._held):
            self._pieces.add(text)
        self._held = []

    def _finish(self) -> None:
        for sentence in self._sentences.end():
            self._take(sentence)
        self._add_held()

    @property
    def has_news(self) -> bool:
        return self._pieces.has_next if self._is_behind else super().has_news

    @property
    def _is_behind(self) -> bool:
        return self._pieces.is_behind

    def _advance(self) -> None:
        self._pieces.advance(to_end=True)
        if not self._is_behind and self._sentences.unfinished > MOST_UNREAD:
            raise ValueError(f"a sentence of the text is longer than {MOST_UNREAD} characters: end it")

    def _spoken(self) -> SpokenText:
        return self._pieces.said(self._whole)

    def _readings(self) -> tuple[Reading, ...]:
        return self._line.find_readings(self._whole)


class Trailing:
    """The rows of a prompt's trailing text, ``[N, H]``, as they come; each frame needs one."""

    def __init__(self) -> None:
        self.count, self.starved = 0, False
        self._rows: list[torch.Tensor] = []  # not taken by the engine yet
        self._frame = 0  # the last requested one

    def add(self, rows: torch.Tensor) -> None:
        self._rows.append(rows)
        self.count += len(rows)

    def take(self) -> torch.Tensor | None:
        rows, self._rows = self._rows, []
        return torch.cat(rows) if rows else None

    def ask(self, frame: int, is_certain: bool, is_over: bool) -> bool:
        """Return whether a frame may be made: the text is over, or its row is there and it ``is_certain`` to go on."""
        self._frame, self.starved = frame, not (is_over or (frame < self.count and is_certain))
        return not self.starved

    @property
    def is_ahead(self) -> bool:
        return not self.starved and self.count > self._frame + TOKENS_AHEAD


class TokenLine(LateLine):
    """Layout "token": one piece, whose trailing text comes token by token; the ``LateText`` of its request.

    The codes do not depend on when the text comes: a frame is made only when its token is there, or the text has
    ended. If a checkpoint's lines have a minimum length, a frame also waits until the text is long enough to tell.
    """

    def __init__(self, parts: LinePieces, reader: TextReader):
        super().__init__(parts, reader)
        self._holds_end = parts.model.profile.hold_end
        self._ids = ArrivingIds(parts.model.texts)
        self._piece: Piece | None = None
        self._guard: Guard | None = None
        self._trailing = Trailing()

    @property
    def starved(self) -> bool:
        return self._trailing.starved and not self.done

    @property
    def is_ahead(self) -> bool:
        return self._trailing.is_ahead

    def follow(self, guard: Guard) -> None:
        """Adapt a guard to the text as it grows: the longer it is, the more frames it allows."""
        self._guard = guard
        self._adapt()

    def ready(self, frame: int) -> bool:
        certain = not self._holds_end or frame + 1 < self._prompt.min_frames
        return self._trailing.ask(frame, certain, self.done)

    def take(self) -> LatePart | None:
        rows = self._trailing.take()
        return None if rows is None else LatePart(rows, self._prompt.min_frames, self._prompt.text_tokens)

    def complete(self) -> None:
        """Give the piece a prompt with all of its text; before, it had only the first token."""
        if self._piece is None:
            return
        self._piece.text = self._whole.strip()
        self._piece.made = build_piece(self._parts.builder, self._parts.line, self._piece.text)

    @property
    def _prompt(self) -> Prompt:
        assert self._piece is not None
        return self._piece.prompt

    def _add(self, text: str) -> None:
        if not self._whole[: -len(text)].strip():
            text = text.lstrip()
        self._extend(self._ids.add(text), self._ids.text)
        if self._piece is None and len(self._whole) > MOST_UNREAD:
            raise ValueError(
                f"the text begins with more than {MOST_UNREAD - LONGEST_WORD} blanks: send words"
            )
        if self._ids.held > LONGEST_WORD:
            raise ValueError(
                f"a word of the text is longer than {LONGEST_WORD} characters: choose layout sentence"
            )

    def _finish(self) -> None:
        text = self._whole.strip()
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
        check_context(parts.model, self._prompt.length + self._trailing.count + new)
        if new:
            self._trailing.add(parts.builder.rows(ids, ended))
        tokens = self._prompt.text_tokens + len(ids)
        minimum = held_frames(text, False) if self._holds_end else self._prompt.min_frames
        self._piece.made = replace(self._prompt, text_tokens=tokens, min_frames=minimum)
        self._adapt()

    def _adapt(self) -> None:
        if self._guard is not None:
            longest = guard_line(self._prompt, self._parts.options, self._parts.sampling).max_frames
            self._guard.max_frames = longest

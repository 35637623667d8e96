"""Lines whose text comes in parts: their pieces by sentences, or one piece whose text comes token by token."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue

import torch

from ..decode.guard import Guard
from ..decode.request import LatePart
from ..model.tokens import ArrivingIds
from ..text.arriving import Characters, Sentences
from ..text.duration import held_frames
from ..text.encoding import check_encodable, is_encodable
from ..text.normalize import SpokenText, join_spoken
from ..text.pauses import check_spoken, read_pauses, without_pauses
from ..text.pieces import split_arriving
from ..text.split import check_text
from ..voice.prompt import Prompt, check_context
from .ahead import Ahead, Given, rested
from .line_text import LineText
from .piece import Piece
from .pieces import LinePieces, cut_pieces, end_pieces, guard_line
from .text_reader import MOST_UNREAD, TextReader

LONGEST_WORD = 1000  # characters: each part of it would have all of them looked at again
TOKENS_AHEAD = 250  # of the speech, 20 s: text that comes faster is not read beyond them


class LateLine(LineText):
    """A line whose text comes in parts. Only the thread that decodes calls it.

    Args:
        parts: of the line; gets its pieces as they come.
        reader: of its text.
    """

    def __init__(self, parts: LinePieces, reader: TextReader):
        super().__init__()
        self._parts, self._reader, self._line = parts, reader, parts.line
        self._characters = Characters()
        self._whole = ""
        self._is_finished = False  # whether the text is complete, and good

    def poll(self) -> None:
        """Take what has come; the pieces that follow from it are added, one or two at a time."""
        try:
            error = self._poll()
        except Exception as problem:  # whatever it is, it is this line's, and its reader gets it
            error = problem
        if error is not None or (self._is_finished and not self._is_behind):
            self.stop(error)

    def _poll(self) -> BaseException | None:
        """Go on with the text; return what the iterator, or the writing out, has raised."""
        failed = self._advance()
        if failed is not None or self._is_behind or self._is_finished:
            return failed
        part, ended, error = self._reader.take()
        text = self._characters.add(part) + (self._characters.end() if ended else "")
        self._whole += text
        if not is_encodable(text):
            check_encodable(self._whole, "text")
        if text:
            self._add(text)
        failed = self._advance()
        if failed is not None or self._is_behind or not ended:
            return failed
        if error is not None:
            return error
        self._check(self._whole)
        self._finish()
        self._is_finished = True
        return self._advance()

    def stop(self, error: BaseException | None = None) -> None:
        """End the line with the text that has come; nothing more is read."""
        if self._end(error):
            self._reader.close()
            self._parts.line = replace(self._line, text=self._whole)
            self._parts.said = self._spoken()

    @property
    def starved(self) -> bool:
        """Whether the line's current piece waits for text."""
        return False

    @property
    def is_ahead(self) -> bool:
        """Whether what has come is enough for now, however many pieces of the line wait."""
        return False

    @property
    def has_news(self) -> bool:
        """Whether ``poll`` would find something to speak, or the end."""
        return self._reader.has_news or self._is_behind

    @property
    def _is_behind(self) -> bool:
        """Whether what has been taken is not all in pieces: then no more is taken."""
        return False

    def complete(self) -> None:
        """Prepare another take of the line, which has all its text at once. The line must have ended well."""

    def _check(self, text: str) -> None:
        """Raise ValueError if the complete text cannot be spoken."""
        check_text(text)

    def _add(self, text: str) -> None:
        """Take the next part of the text."""
        raise NotImplementedError

    def _finish(self) -> None:
        """The text is complete."""
        raise NotImplementedError

    def _advance(self) -> BaseException | None:
        """Go on with what has been taken, up to the next piece. Return what went wrong: it ends this line alone."""
        return None

    def _spoken(self) -> SpokenText:
        """Return the text as it is spoken."""
        return SpokenText(self._whole)


@dataclass(frozen=True)
class Written:
    """The next piece of a stretch of text between pauses, with its leading silence; at the end, the stretch itself.

    Args:
        piece: of the stretch; "" at its end.
        pause_s: seconds of silence before the piece, or of a pause without text.
        part: the stretch, once all of its pieces were given.
        said: its normalized form, likewise.
    """

    piece: str
    pause_s: float
    part: str = ""
    said: SpokenText | None = None


class SentenceLine(LateLine):
    """Layout "sentence": each sentence is written out, split if it is too long, and is a piece or several.

    A prompt takes some milliseconds, so that the pieces of much text are not added at once. Figures take long to write
    out: from the first sentence that has any on, a thread of the line's own does it.
    """

    def __init__(self, parts: LinePieces, reader: TextReader):
        super().__init__(parts, reader)
        self._sentences = Sentences()
        self._said: list[SpokenText] = []
        self._changed = False
        self._silence = 0.0  # seconds before the next piece
        self._normalizer = parts.normalizer.until(rested(self._done.is_set))
        self._unwritten: deque[tuple[str, float]] = deque()  # parts of sentences, and the pauses before them
        self._writing: Iterator[Written] | None = None  # of a part that is written out here
        self._kept: Given[Written] | None = None  # a piece for the next poll
        self._to_write: SimpleQueue[tuple[str, float] | None] = SimpleQueue()  # for the thread; None: no more
        self._in_thread = False  # whether the thread has a part
        self._ahead: Ahead[Written] | None = None

    def stop(self, error: BaseException | None = None) -> None:
        """See ``LateLine``."""
        if self._ahead is not None:
            self._ahead.close()
            self._to_write.put(None)
        if self._is_finished and not self._is_behind and not self.done:
            end_pieces(self._parts.pieces, self._silence)
        self._writing = None  # the generator refers to the line
        super().stop(error)

    def _check(self, text: str) -> None:
        check_spoken(text)

    def _add(self, text: str) -> None:
        self._queue(self._sentences.add(text))

    def _finish(self) -> None:
        self._queue(self._sentences.end())

    def _queue(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            paused = read_pauses(sentence)
            self._unwritten += zip([*paused.parts, ""], paused.pauses_s, strict=True)

    @property
    def has_news(self) -> bool:
        """See ``LateLine``."""
        if self._in_thread and self._ahead is not None:
            return self._ahead.has_given
        return super().has_news

    @property
    def _is_behind(self) -> bool:
        return self._in_thread or bool(self._kept or self._writing or self._unwritten)

    def _advance(self) -> BaseException | None:
        before = len(self._parts.pieces)
        while (given := self._kept or self._next()) is not None:
            self._kept = None
            if given.error is not None:
                return given.error
            if given.value is not None and given.value.piece and len(self._parts.pieces) > before:
                self._kept = given
                return None
            if given.value is not None:
                self._say(given.value)
        return None

    def _next(self) -> Given[Written] | None:
        """Return what has been written out next; None where that is nothing yet."""
        if self._ahead is not None and self._in_thread:
            given = self._ahead.take()
            self._in_thread = given is None or given.value is None or given.value.said is None
            return given
        if self._writing is not None and (written := next(self._writing, None)) is not None:
            return Given(written)
        self._writing = None
        return self._begin(*self._unwritten.popleft()) if self._unwritten else self._check_size()

    def _begin(self, part: str, pause_s: float) -> Given[Written] | None:
        """Begin to write the next part out, in the thread from the first one on that takes long."""
        if self._ahead is None and self._normalizer.is_quick(part, self._line.language):
            self._writing = self._write(part, pause_s)
            return self._next()
        if self._ahead is None:
            self._ahead = Ahead(self._write_ahead(), self._reader.bell.set)
        self._in_thread = True
        self._to_write.put((part, pause_s))
        return None

    def _check_size(self) -> Given[Written] | None:
        """All that is complete has been said: the sentence that is not may not be endless."""
        if self._sentences.unfinished <= MOST_UNREAD:
            return None
        return Given(
            error=ValueError(f"a sentence of the text is longer than {MOST_UNREAD} characters: end it")
        )

    def _write_ahead(self) -> Iterator[Written]:
        while (next_part := self._to_write.get()) is not None:
            yield from self._write(*next_part)

    def _write(self, part: str, pause_s: float) -> Iterator[Written]:
        """Give the pieces of a part, each as soon as it is written out, and then its end."""
        parts = self._normalizer.parts(part, self._line.language) if part else ()
        said: list[SpokenText] = []
        for piece in split_arriving(_noted(parts, said), self._parts.limit):
            yield Written(piece, pause_s)
            pause_s = 0.0
        yield Written("", pause_s, part, join_spoken(said))

    def _say(self, written: Written) -> None:
        """Add a piece, unless it has nothing to speak; or note how a part is spoken."""
        parts = self._parts
        self._silence += written.pause_s
        for piece in cut_pieces(self._line, [written.piece], parts.normalizer, len(parts.pieces)):
            piece.pause_s, self._silence = self._silence, 0.0
            parts.add(piece)
        if written.part and written.said is not None:
            self._said.append(written.said)
            self._changed = self._changed or written.said.text.split() != written.part.split()

    def _spoken(self) -> SpokenText:
        notes = dict.fromkeys(note for said in self._said for note in said.notes)
        text = " ".join(said.text for said in self._said) if self._changed else without_pauses(self._whole)
        return SpokenText(text, tuple(notes))


def _noted(parts: Iterable[SpokenText], said: list[SpokenText]) -> Iterator[SpokenText]:
    """Give the parts, and append each to ``said``."""
    for part in parts:
        said.append(part)
        yield part


class TokenLine(LateLine):
    """Layout "token": one piece, whose trailing text comes token by token. It is the ``LateText`` of its request.

    The codes do not depend on when the text comes: a frame is made only when its token is there, or the text has ended.
    Where a checkpoint's lines may not end too early, a frame also waits until the text is long enough to tell.
    """

    def __init__(self, parts: LinePieces, reader: TextReader):
        super().__init__(parts, reader)
        self._holds_end = parts.model.profile.hold_end
        self._ids = ArrivingIds(parts.model.texts)
        self._piece: Piece | None = None
        self._guard: Guard | None = None
        self._rows: list[torch.Tensor] = []  # those that the engine has not taken
        self._count = 0  # all of them
        self._frame = 0  # the last one that was asked for
        self._starved = False

    @property
    def starved(self) -> bool:
        """See ``LateLine``."""
        return self._starved and not self.done

    @property
    def is_ahead(self) -> bool:
        """See ``LateLine``."""
        return not self._starved and self._count > self._frame + TOKENS_AHEAD

    def follow(self, guard: Guard) -> None:
        """Adapt a guard to the text: the more there is, the longer it may take."""
        self._guard = guard
        self._adapt()

    def ready(self, frame: int) -> bool:
        """See ``LateText``."""
        certain = not self._holds_end or frame + 1 < self._prompt.min_frames
        ready = self.done or (frame < self._count and certain)
        self._frame, self._starved = frame, not ready
        return ready

    def take(self) -> LatePart | None:
        """See ``LateText``."""
        if not self._rows:
            return None
        rows, self._rows = torch.cat(self._rows), []
        return LatePart(rows, self._prompt.min_frames)

    def complete(self) -> None:
        """See ``LateLine``: the prompt had only the first token, and its request was given the others."""
        if self._piece is None:
            return
        self._piece.text = self._whole.strip()
        self._piece.made = self._parts.build(self._piece.text)

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
        """Add tokens to the prompt; ``text`` is that of all of them."""
        parts, line = self._parts, self._line
        if self._piece is None:
            if not ids:
                return
            prompt = parts.builder.begin(ids[0], line.voice, line.language, line.instruct)
            self._piece = Piece(text, line.seed, made=prompt)
            parts.add(self._piece)
            ids = ids[1:]
        count = self._count + len(ids) + ended
        check_context(parts.model, self._prompt.length + count)
        if count > self._count:
            self._rows.append(parts.builder.rows(ids, ended))
        self._count = count
        tokens = self._prompt.text_tokens + len(ids)
        minimum = held_frames(text, False) if self._holds_end else self._prompt.min_frames
        self._piece.made = replace(self._prompt, text_tokens=tokens, min_frames=minimum)
        self._adapt()

    def _adapt(self) -> None:
        if self._guard is not None:
            longest = guard_line(self._prompt, self._parts.options, self._parts.sampling).max_frames
            self._guard.max_frames = longest

"""Normalize a text while it is spoken: its first piece does not wait for the last one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

from ...text.normalize import Normalizer, SpokenText, join_spoken
from ...text.pauses import read_pauses
from ...text.pieces import split_arriving
from ..pieces import LinePieces, cut_pieces, end_pieces, join_texts, noted
from .ahead import Ahead, rested


@dataclass
class Stretch:
    """A stretch of a text between pauses."""

    text: str  # "" for a pause at the text's end
    pause_s: float  # seconds of silence before it
    is_quick: bool  # see ``Normalizer.is_quick``
    said: list[SpokenText] = field(default_factory=list)
    is_read: bool = False  # ``said`` is complete

    def write_out(self, normalizer: Normalizer, language: str) -> Iterator[SpokenText]:
        for part in normalizer.parts(self.text, language) if self.text else ():
            self.said.append(part)
            yield part
        self.is_read = True


@dataclass(frozen=True)
class Cut:
    """A piece of a text, and the seconds of silence before it. Each stretch ends with one without text."""

    text: str
    pause_s: float


class WrittenPieces:
    """Normalizes and cuts a line's text, and adds the pieces to the line as they are needed.

    A prompt takes some milliseconds, so a long text must not delay other lines with all of its pieces. Figures take
    far longer: from the first stretch with any, a thread of the line's own normalizes the text, and calls ``bell``.
    """

    def __init__(self, parts: LinePieces, is_stopped: Callable[[], bool], bell: Callable[[], None]):
        self._parts, self._line, self._bell = parts, parts.line, bell
        self._normalizer = parts.normalizer.until(rested(is_stopped))
        self._stretches: list[Stretch] = []
        self._waiting: deque[Stretch] = deque()  # not started yet
        self._cuts: Iterator[Cut] | None = None  # of the stretch that is normalized here
        self._ahead: Ahead[Cut] | None = None
        self._to_write: SimpleQueue[Stretch | None] = SimpleQueue()  # for the thread; None: no more
        self._in_thread = 0  # stretches in the thread
        self._kept: Cut | None = None  # for the next ``advance``
        self._silence = 0.0  # seconds before the next piece

    def add(self, text: str) -> None:
        """Add a text, or its next part; no piece crosses its end."""
        paused = read_pauses(self._line.as_read(text))
        for part, pause_s in zip([*paused.parts, ""], paused.pauses_s, strict=True):
            is_quick = self._normalizer.is_quick(part, self._line.language)
            self._waiting.append(Stretch(part, pause_s, is_quick))
            self._stretches.append(self._waiting[-1])

    @property
    def is_behind(self) -> bool:
        """Whether pieces of the added text are missing, or may be."""
        return bool(self._in_thread or self._kept or self._cuts or self._waiting)

    @property
    def has_next(self) -> bool:
        if self._ahead is None or not self._in_thread:
            return self.is_behind
        return bool(self._kept or self._cuts) or self._ahead.has_given

    @property
    def is_read(self) -> bool:
        return all(one.is_read for one in self._stretches if one.text)

    def advance(self, to_end: bool = False) -> None:
        """Add the next piece if it is there; raises what went wrong with the text, after which nothing more comes.

        ``to_end``: also find out whether it is the last one, which takes as long as another piece.
        """
        before = len(self._parts.pieces)
        while to_end or len(self._parts.pieces) == before:
            cut, self._kept = self._kept or self._next(), None
            if cut is None:
                return
            if cut.text and len(self._parts.pieces) > before:
                self._kept = cut
                return
            self._add(cut)

    def _next(self) -> Cut | None:
        """Return the next piece, or the end of a stretch; None if there is none yet."""
        if self._cuts is not None and (cut := next(self._cuts, None)) is not None:
            return cut
        self._cuts = None
        if self._in_thread and self._ahead is not None:
            return self._take(self._ahead)
        if not self._waiting:
            return None
        self._begin()
        return self._next()

    def _take(self, ahead: Ahead[Cut]) -> Cut | None:
        given = ahead.take()
        if given is None:
            return None
        if given.error is not None:
            raise given.error
        self._in_thread -= given.value is not None and not given.value.text  # a stretch has ended
        return given.value

    def _begin(self) -> None:
        """Begin to normalize: the next stretch here if it is quick, and the others too if all are."""
        if self._ahead is None:
            if self._waiting[0].is_quick:
                self._cuts = self._cut(self._waiting.popleft())
            if all(one.is_quick for one in self._waiting):
                return
            self._ahead = Ahead(self._cut_ahead(), self._bell)
        self._in_thread = len(self._waiting)
        while self._waiting:
            self._to_write.put(self._waiting.popleft())

    def _cut_ahead(self) -> Iterator[Cut]:
        while (stretch := self._to_write.get()) is not None:
            yield from self._cut(stretch)

    def _cut(self, stretch: Stretch) -> Iterator[Cut]:
        silence = stretch.pause_s
        parts = stretch.write_out(self._normalizer, self._line.language)
        for text in split_arriving(parts, self._parts.limit):
            yield Cut(text, silence)
            silence = 0.0
        yield Cut("", silence)

    def _add(self, cut: Cut) -> None:
        parts = self._parts
        self._silence += cut.pause_s
        for piece in cut_pieces(self._line, [cut.text], parts.normalizer, len(parts.pieces), self._silence):
            parts.add(piece)
            self._silence = 0.0

    def end(self, is_whole: bool = True) -> None:
        """Stop normalizing. ``is_whole``: the pieces so far are all pieces of the line."""
        if self._ahead is not None:
            self._ahead.close()
            self._to_write.put(None)
        self._cuts = None  # the generator refers to this object
        if is_whole:
            end_pieces(self._parts.pieces, self._silence)

    def said(self, text: str) -> SpokenText:
        """Return the added ``text`` as spoken, as far as it is normalized."""
        own = [stretch for stretch in self._stretches if stretch.text]
        said = [join_spoken(stretch.said) for stretch in own]
        if not self.is_read:
            return join_spoken(said)
        return noted(text, join_texts(self._line.as_read(text), [one.text for one in own], said))

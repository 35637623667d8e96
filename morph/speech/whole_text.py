"""A line whose text is there, written out and cut piece by piece: its first piece does not wait for the last one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..text.normalize import SpokenText, join_spoken
from ..text.pauses import read_pauses
from ..text.pieces import split_arriving
from .ahead import Ahead, Given, rested
from .line_text import LineText
from .pieces import LinePieces, cut_pieces, end_pieces, join_texts


@dataclass(frozen=True)
class Cut:
    """A piece of a text, and the seconds of silence that the text has before it."""

    text: str
    pause_s: float


class WholeLine(LineText):
    """Adds the pieces of a line as they are wanted; they are those of ``LinePieces.cut``.

    A prompt takes some milliseconds, so a long text must not hold up other lines with all of them. Figures take far
    longer to write out, and a text that has any is written out in a thread of its own. Polled as a ``LateLine`` is.

    ``is_read``: whether all of the text has been written out, so that no piece is far.

    Args:
        parts: of the line, without pieces; gets them.
        bell: called when a piece of a text with figures is there.
    """

    starved = False

    def __init__(self, parts: LinePieces, bell: Callable[[], None] = lambda: None):
        super().__init__()
        line = parts.line
        assert isinstance(line.text, str)
        self._parts, self._line, self._text = parts, line, line.text
        self._paused = read_pauses(line.text)
        self._said: list[list[SpokenText]] = []  # of each part between pauses
        self._silence = 0.0  # seconds before the next piece
        self.is_read = False
        self._normalizer = parts.normalizer.until(rested(self._done.is_set))
        self._cuts: Iterator[Cut] = self._cut()
        quick = self._normalizer.is_quick(line.text, line.language)
        self._ahead = None if quick else Ahead(self._cuts, bell)

    def poll(self) -> None:
        """Add the next piece if it is there, or note that there is none."""
        before = len(self._parts.pieces)
        try:
            while not self.done and len(self._parts.pieces) == before:
                given = self._ahead.take() if self._ahead else Given(next(self._cuts, None))
                if given is None:
                    return
                if given.value is None:
                    self.stop(given.error)
                else:
                    self._add(given.value)
        except Exception as error:  # whatever it is, it is this line's, and its reader gets it
            self.stop(error)

    def _add(self, cut: Cut) -> None:
        """Add a piece, unless it has nothing to speak."""
        parts = self._parts
        self._silence += cut.pause_s
        for piece in cut_pieces(self._line, [cut.text], parts.normalizer, len(parts.pieces)):
            piece.pause_s = self._silence
            parts.add(piece)
            self._silence = 0.0

    def stop(self, error: BaseException | None = None) -> None:
        """End the line with the pieces it has."""
        if not self._end(error):
            return
        if self._ahead:
            self._ahead.close()
        self._cuts = iter(())  # the generator refers to the line too
        said = [join_spoken(part) for part in self._said]
        whole = len(said) == len(self._paused.parts)
        self._parts.said = join_texts(self._text, self._paused.parts, said) if whole else join_spoken(said)
        end_pieces(self._parts.pieces, self._silence + self._paused.pauses_s[-1])

    def _cut(self) -> Iterator[Cut]:
        silence = 0.0
        for part, pause in zip(self._paused.parts, self._paused.pauses_s, strict=False):
            silence += pause
            for text in split_arriving(self._write_out(part), self._parts.limit):
                yield Cut(text, silence)
                silence = 0.0
        yield Cut("", silence)  # of a last part that has nothing to speak

    def _write_out(self, part: str) -> Iterator[SpokenText]:
        said: list[SpokenText] = []
        self._said.append(said)
        for one in self._normalizer.parts(part, self._line.language):
            said.append(one)
            yield one
        self.is_read = len(self._said) == len(self._paused.parts)

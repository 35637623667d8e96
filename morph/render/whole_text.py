"""A line whose text is there, written out and cut piece by piece: its first piece does not wait for the last one."""

from __future__ import annotations

from collections.abc import Iterator

from ..text.normalize import SpokenText, join_spoken
from ..text.split import split_arriving
from .lines import Line, Rendering, build_piece, cut_pieces, piece_limit


class WholeLine:
    """Gives a rendering of one line its pieces, those of ``render_lines``, as they are wanted.

    Writing out figures takes some 50 ms per sentence, and a prompt a few: a long text must not hold up other lines for
    that long. It is polled as a ``LateLine`` is.

    ``is_read``: whether all of the text has been written out, so that no piece is far.

    Args:
        rendering: prepared for the line with an empty text; gets pieces and prompts.
        line: with its text.
    """

    starved = False

    def __init__(self, rendering: Rendering, line: Line):
        assert isinstance(line.text, str)
        self._rendering, self._line = rendering, line
        rendering.lines[0] = line
        self._said: list[SpokenText] = []
        self._texts = self._cut(line.text)
        self.done = self.is_read = False
        self.error: BaseException | None = None

    def poll(self) -> None:
        """Add the next piece, or note that there is none."""
        rendering, line = self._rendering, self._line
        try:
            text = next(self._texts, None)
            if text is None:
                self.stop()
                return
            for piece in cut_pieces(0, line, [text], rendering.normalizer, len(rendering.pieces)):
                prompt = build_piece(rendering.builder, line, piece.text)
                rendering.pieces.append(piece)
                rendering.prompts.append(prompt)
        except ValueError as error:
            self.stop(error)

    def stop(self, error: BaseException | None = None) -> None:
        """End the line with the pieces it has."""
        if not self.done:
            self.done, self.error = True, error
            self._rendering.texts[0] = join_spoken(self._said)

    def _cut(self, text: str) -> Iterator[str]:
        limit = piece_limit(self._rendering.synthesizer.model, self._rendering.options)
        return split_arriving(self._write_out(text), limit)

    def _write_out(self, text: str) -> Iterator[str]:
        for part in self._rendering.normalizer.parts(text, self._line.language):
            self._said.append(part)
            if part.text:
                yield part.text
        self.is_read = True

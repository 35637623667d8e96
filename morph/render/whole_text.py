"""A line whose text is there, written out and cut piece by piece: its first piece does not wait for the last one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..text.normalize import SpokenText, join_spoken
from ..text.pauses import read_pauses
from ..text.split import split_arriving
from .lines import Line, Rendering, build_piece, cut_pieces, end_pieces, join_texts, piece_limit


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
        self._rendering, self._line, self._text = rendering, line, line.text
        rendering.lines[0] = line
        self._paused = read_pauses(line.text)
        self._said: list[list[SpokenText]] = []  # the sentences of each part between pauses
        self._silence = 0.0  # seconds before the next piece
        self._limit = piece_limit(rendering.synthesizer.model, rendering.options)
        self._texts = self._cut()
        self.done = self.is_read = False
        self.error: BaseException | None = None

    def poll(self) -> None:
        """Add the next piece, or note that there is none."""
        before = len(self._rendering.pieces)
        try:
            while not self.done and len(self._rendering.pieces) == before:
                if (text := next(self._texts, None)) is None:
                    self.stop()
                else:
                    self._add(text)
        except ValueError as error:
            self.stop(error)

    def _add(self, text: str) -> None:
        """Add a piece, unless it has nothing to speak."""
        rendering, line = self._rendering, self._line
        for piece in cut_pieces(0, line, [text], rendering.normalizer, len(rendering.pieces)):
            prompt = build_piece(rendering.builder, line, piece.text)
            rendering.pieces.append(replace(piece, pause_s=self._silence))
            rendering.prompts.append(prompt)
            self._silence = 0.0

    def stop(self, error: BaseException | None = None) -> None:
        """End the line with the pieces it has."""
        if self.done:
            return
        self.done, self.error = True, error
        said = [join_spoken(part) for part in self._said]
        whole = len(said) == len(self._paused.parts)
        self._rendering.texts[0] = (
            join_texts(self._text, self._paused.parts, said) if whole else join_spoken(said)
        )
        self._rendering.pieces[:] = end_pieces(self._rendering.pieces, self._silence)

    def _cut(self) -> Iterator[str]:
        for part, pause in zip(self._paused.parts, self._paused.pauses_s, strict=False):
            self._silence += pause
            yield from split_arriving(self._write_out(part), self._limit)
        self._silence += self._paused.pauses_s[-1]

    def _write_out(self, part: str) -> Iterator[str]:
        said: list[SpokenText] = []
        self._said.append(said)
        for sentence in self._rendering.normalizer.parts(part, self._line.language):
            said.append(sentence)
            if sentence.text:
                yield sentence.text
        self.is_read = len(self._said) == len(self._paused.parts)

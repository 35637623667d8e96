"""A complete text that is normalized and cut piece by piece."""

from __future__ import annotations

from collections.abc import Callable

from ..pieces import LinePieces
from .line_text import LineText
from .written_pieces import WrittenPieces


class WholeLine(LineText):
    """Adds a line's pieces as needed, as ``LinePieces.cut``; ``bell`` is called when a piece with figures is ready."""

    starved = False

    def __init__(self, parts: LinePieces, bell: Callable[[], None] = lambda: None):
        super().__init__()
        self._parts, self._text = parts, str(parts.line.text)
        self._pieces = WrittenPieces(parts, self._done.is_set, bell)
        self._pieces.add(self._text)

    @property
    def is_read(self) -> bool:
        """Whether all text has been normalized, so that no piece is far."""
        return self._pieces.is_read

    def poll(self) -> None:
        """Add the next piece if it is there, or end the line after the last."""
        error: Exception | None = None
        try:
            self._pieces.advance()
        except Exception as problem:  # of any kind: it is this line's, and its reader gets it
            error = problem
        if error is not None or not self._pieces.is_behind:
            self.stop(error)

    def stop(self, error: BaseException | None = None) -> None:
        if self._end(error):
            self._pieces.end()
            self._parts.said = self._pieces.said(self._text)
            self._parts.readings = self._parts.line.find_readings(self._text)

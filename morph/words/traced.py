"""The data of a spoken line for its word times."""

from dataclasses import dataclass

from ..text.pronunciation import Reading
from .path import traced_path
from .timing import PiecePath, Times, WordTime, line_words, retime_words
from .trace import Trace


@dataclass(frozen=True)
class TracedPiece:
    """A piece of a line and its trace; the rest as of ``PiecePath``."""

    text: str
    tokens: tuple[tuple[int, int], ...]
    trace: Trace
    start_s: float = 0.0
    quiet: tuple[Times, ...] = ()

    @property
    def path(self) -> PiecePath:
        """Its ``PiecePath``; raise ValueError for a trace of another text."""
        path = tuple(traced_path(self.trace, len(self.tokens)))
        return PiecePath(self.text, self.tokens, path, self.start_s, self.quiet)


@dataclass(frozen=True)
class TracedLine:
    """A line that was spoken at speed 1, and is played at ``speed``; the rest as of ``line_words``."""

    text: str
    pieces: tuple[TracedPiece, ...]
    seconds: float
    lead_s: float = 0.0
    readings: tuple[Reading, ...] = ()
    speed: float = 1.0

    def words(self) -> tuple[WordTime, ...]:
        pieces = [piece.path for piece in self.pieces]
        words = line_words(self.text, pieces, self.seconds, self.lead_s, self.readings)
        return retime_words(words, self.speed)

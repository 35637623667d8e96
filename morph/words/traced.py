"""The data of a spoken line for its word times, which another process may compute."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

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

    def to_json(self) -> dict[str, Any]:
        pieces = [[one.text, one.tokens, _encode(one.trace), one.start_s, one.quiet] for one in self.pieces]
        readings = [astuple(one) for one in self.readings]
        return {**vars(self), "pieces": pieces, "readings": readings}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> TracedLine:
        pieces = tuple(
            TracedPiece(text, _pairs(tokens), _decode(trace), start_s, _pairs(quiet))
            for text, tokens, trace, start_s, quiet in told["pieces"]
        )
        readings = tuple(Reading(*one) for one in told["readings"])
        return cls(**{**told, "pieces": pieces, "readings": readings})


def _encode(trace: Trace) -> str:
    """Return a trace's numbers, exact in float32, as base64: 250 frames take 0.01 ms, lists 0.2."""
    numbers = np.stack((trace.tokens, trace.weights, trace.mass)).astype("<f4")
    return base64.b64encode(numbers.tobytes()).decode()


def _decode(told: str) -> Trace:
    tokens, weights, mass = np.frombuffer(base64.b64decode(told), "<f4").reshape(3, -1)
    return Trace(tokens.astype(np.int32), weights, mass)


def _pairs(rows: Any) -> tuple[tuple[Any, Any], ...]:
    return tuple((first, last) for first, last in rows)

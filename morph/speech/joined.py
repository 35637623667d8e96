"""Join the best takes of a line's pieces, and report how it went."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...postprocess.checks import Waveform
from ...postprocess.ends import EndTrim
from ...postprocess.join import StreamJoin
from ..options import GenerateOptions
from .lines import LineReport, PieceSpan, Spoken
from .pieces import LinePieces, Piece, concatenate, text_as_spoken
from .takes import CAP, ENDS, WRONG, Take

log = logging.getLogger(__name__)

WHAT_HAPPENED = {
    "echo": "begins with words of its reference",
    "words": "has wrong words",
    "cap": "ran into its limit",
    "loop": "repeated itself",
    "early": "ended before its text can have been spoken",
    "silent": "is silent",
    "error": "could not be made",
}
CROSSFADE_MS = 60.0  # between the pieces of a split text
WORDS_DIFFER = "recognised words differ from the text"


def assemble(parts: LinePieces, engine: str, stopped: str | None = None) -> Spoken:
    """Return a line from the takes of its pieces; pieces without a take are left out.

    ``stopped``: one of ``takes.STOPPED`` for a line that ended so: its samples so far are joined.
    """
    rate, most = parts.model.sample_rate, parts.sampling.line_frames
    own = [(piece, piece.take) for piece in parts.pieces if piece.take is not None]
    if stopped is not None:
        own = [(piece, take) for piece, take in own if len(take.waveform)]
    own = limit_takes(own, most)
    frames = sum(len(take.decoded.codes) for _, take in own)
    has_ended = stopped is None and (most is None or frames < most)
    waveform, spans = join_pieces(own, rate, parts.options, has_ended)
    report = report_of(parts, [take for _, take in own], frames, len(waveform) / rate, stopped)
    return Spoken(waveform, rate, report, spans, engine)


def report_of(
    parts: LinePieces, takes: Sequence[Take], frames: int, seconds: float, stopped: str | None
) -> LineReport:
    """Return how a line went; ``stopped``: as ``assemble``."""
    normalized = parts.normalized
    return LineReport(
        parts.line.name,
        str(parts.line.text),
        frames,
        seconds,
        stopped or next((take.ended for take in takes if take.ended in WRONG), ENDS[0]),
        len(parts.pieces),
        text_as_spoken(parts.line, normalized),
        max((take.number for take in takes), default=1),
        (*normalized.notes, *(f"Wrong words: {take.wrong}." for take in takes if take.wrong)),
        readings=parts.readings,
    )


def warn_of(report: LineReport) -> None:
    if report.ended in WRONG:
        log.warning("the line %.40r %s; try another seed", report.text, WHAT_HAPPENED[report.ended])


def limit_takes(own: Sequence[tuple[Piece, Take]], most: int | None) -> list[tuple[Piece, Take]]:
    """Return the takes within ``most`` frames (``Sampling.line_frames``); the last is marked if any are left out."""
    left: float = math.inf if most is None else most
    limited: list[tuple[Piece, Take]] = []
    for piece, take in own:
        if left <= 0:
            last, end = limited.pop()
            return [*limited, (last, end if end.ended in WRONG else replace(end, ended=CAP))]
        frames = len(take.decoded.codes)
        limited.append((piece, take if frames <= left else take.begin(int(left))))
        left -= frames
    return limited


def join_pieces(
    own: Sequence[tuple[Piece, Take]], sample_rate: int, options: GenerateOptions, has_ended: bool = True
) -> tuple[Waveform, tuple[PieceSpan, ...]]:
    """Return a line's waveform and its pieces' spans; ``has_ended``: spoken to its end, so a pause may follow."""
    if len(own) == 1 and not (own[0][0].pause_s or (own[0][0].after_s and has_ended) or options.trim_ends):
        # Most lines: a copy would take as long as the rest of the assembly.
        [(piece, take)] = own
        return take.waveform, (PieceSpan(piece.text, 0, len(take.waveform), take.decoded.trace),)
    joined = LineJoin(sample_rate, options.trim_ends)
    for piece, take in own:
        joined.begin_piece(piece.pause_s, len(take.waveform))
        joined.add(take.waveform)
        joined.end_piece()
    joined.limit(0, own[-1][0].after_s if own and has_ended else 0.0)
    waveform = joined.take(is_last=True)
    first, last, spans = joined.lead, len(waveform) - joined.after, []
    for (piece, take), place in zip(own, joined.places, strict=True):
        begin = place + joined.offset
        # A first or last piece that is silent may have been trimmed away completely.
        start, end = (min(max(one, first), last) for one in (begin, begin + len(take.waveform)))
        spans.append(PieceSpan(piece.text, start, end, take.decoded.trace, start - begin))
    return waveform, tuple(spans)


class LineJoin:
    """Joins the pieces of a line, each added in parts: pauses, crossfades, and silence cut at its ends.

    ``lead`` and ``after`` are samples of silence at the ends, which are not cut; ``places`` is where pieces begin in
    the samples between them, before silence is cut, and ``taken`` counts the samples of ``take``.
    """

    def __init__(self, sample_rate: int, trims_ends: bool):
        self._rate, self._fade = sample_rate, round(CROSSFADE_MS / 1000 * sample_rate)
        self._join = StreamJoin(None, self._fade)
        self._trim = EndTrim(sample_rate) if trims_ends else None
        self._parts: list[Waveform] = []
        self.lead = self.after = self.taken = 0
        self.places: list[int] = []
        self._end = 0  # of the current piece so far

    @property
    def offset(self) -> int:
        """The shift from a place to the line's waveform."""
        return self.lead - (0 if self._trim is None else self._trim.start)

    @property
    def has_samples(self) -> bool:
        return any(map(len, self._parts))

    def begin_piece(self, pause_s: float, length: float = math.inf) -> None:
        """Begin a piece after a pause, or with a crossfade, which takes at most half of its ``length``."""
        pause, place = round(pause_s * self._rate), self.places[-1] if self.places else 0
        if not self.places:
            self.lead, pause = pause, 0
        elif pause:
            self._parts.append(self._join.gap(pause))
        self._end += pause or -int(min(self._fade, (self._end - place) // 2, length // 2))
        self.places.append(self._end)

    def add(self, samples: Waveform) -> None:
        self._end += len(samples)
        self._parts.append(self._join.add(samples))

    def end_piece(self) -> None:
        self._parts.append(self._join.end())

    def limit(self, pieces: int, after_s: float = 0.0) -> None:
        """Set how many pieces have not ended, the current one included, and the silence after them."""
        self.after = round(after_s * self._rate)
        self._parts.append(self._join.limit(pieces))

    def take(self, is_last: bool) -> Waveform:
        """Return the samples that are final now."""
        parts, self._parts = self._parts, []
        if self._trim is not None:
            parts = [self._trim.add(concatenate(parts)), *([self._trim.end()] if is_last else [])]
        ends = 0 if self.taken else self.lead, self.after if is_last else 0
        lead, after = (np.zeros(count, dtype=np.float32) for count in ends)
        samples = concatenate([lead, *parts, after])
        self.taken += len(samples)
        return samples

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
from .pieces import NO_SAMPLES, LinePieces, Piece, concatenate, text_as_spoken
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


def report_of(parts: LinePieces, takes: Sequence[Take], frames: int, seconds: float, stopped: str | None) -> LineReport:
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
    joined, waves = LineJoin(sample_rate, options.trim_ends), []
    for piece, take in own:
        pause = joined.begin_piece(piece.pause_s, len(take.waveform))
        waves.append(joined.take([pause, joined.add(take.waveform), joined.end()]))
    joined.after_s = own[-1][0].after_s if own and has_ended else 0.0
    waves.append(joined.take([joined.limit(0)], is_last=True))
    waveform = concatenate(waves)
    first, last = joined.lead, len(waveform) - round(joined.after_s * sample_rate)
    spans = []
    for (piece, take), place in zip(own, joined.places, strict=True):
        begin = place + joined.offset
        # A first or last piece that is silent may have been trimmed away completely.
        start, end = (min(max(one, first), last) for one in (begin, begin + len(take.waveform)))
        spans.append(PieceSpan(piece.text, start, end, take.decoded.trace, start - begin))
    return waveform, tuple(spans)


class LineJoin(StreamJoin):
    """Joins the pieces of a line with pauses or crossfades, and cuts the silence at its ends.

    ``lead`` samples and ``after_s`` seconds of silence at the ends are not cut. ``places`` is where the pieces begin
    between them before silence is cut; ``taken`` counts the samples of ``take``.
    """

    def __init__(self, sample_rate: int, trims_ends: bool):
        super().__init__(None, round(CROSSFADE_MS / 1000 * sample_rate))
        self._rate, self._trim = sample_rate, EndTrim(sample_rate) if trims_ends else None
        self._joined = self.lead = self.taken = 0
        self.after_s = 0.0
        self.places: list[int] = []

    @property
    def offset(self) -> int:
        """The shift from a place to the line's waveform."""
        return self.lead - (0 if self._trim is None else self._trim.start)

    def begin_piece(self, pause_s: float, length: float = math.inf) -> Waveform:
        """Begin a piece after a pause, or with a crossfade, which takes at most half of its ``length``."""
        pause, tail = round(pause_s * self._rate), 0 if self._tail is None else len(self._tail)
        if not self.places:
            self.lead, pause = pause, 0
        self.places.append(self._joined + tail + (pause or -int(min(tail, length // 2))))
        return self.gap(pause) if pause else NO_SAMPLES

    def take(self, parts: Sequence[Waveform], is_last: bool = False) -> Waveform:
        """Return the samples of the line that are final, after those of the joined pieces in ``parts``."""
        samples = concatenate(parts)
        self._joined += len(samples)
        parts = [samples]
        if self._trim is not None:
            parts = [self._trim.add(samples), *([self._trim.end()] if is_last else [])]
        if self.lead and not self.taken:
            parts.insert(0, np.zeros(self.lead, dtype=np.float32))
        if is_last and self.after_s:
            parts.append(np.zeros(round(self.after_s * self._rate), dtype=np.float32))
        samples = concatenate(parts) if len(parts) > 1 else parts[0]
        self.taken += len(samples)
        return samples

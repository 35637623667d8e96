"""Join the best takes of a line's pieces, and report how it went."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...postprocess.checks import Waveform
from ...postprocess.ends import trim_ends
from ...postprocess.join import Spacing, join
from ..options import GenerateOptions
from .lines import LineReport, PieceSpan, Spoken
from .pieces import NO_SAMPLES, LinePieces, Piece, text_as_spoken
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
    if not own:
        return NO_SAMPLES, ()
    lead, *between = [piece.pause_s for piece, _ in own]
    after = own[-1][0].after_s if has_ended else 0.0
    speech, start = own[0][1].waveform, 0
    places = [(0, len(speech))]
    # Most lines: a copy would take as long as the rest of the assembly.
    is_plain = len(speech) and not (between or lead or after or options.trim_ends)
    if not is_plain:
        speech, places = join([take.waveform for _, take in own], sample_rate, Spacing(between, CROSSFADE_MS))
        speech, start = trim_ends(speech, sample_rate) if options.trim_ends else (speech, 0)
    silences = [np.zeros(round(seconds * sample_rate), dtype=np.float32) for seconds in (lead, after)]
    shift, stop = len(silences[0]) - start, start + len(speech)
    spans = []
    for (piece, take), (begin, end) in zip(own, places, strict=True):
        # A first or last piece that is silent may have been trimmed away completely.
        kept, last = min(max(begin, start), stop), min(max(end, start), stop)
        spans.append(PieceSpan(piece.text, kept + shift, last + shift, take.decoded.trace, kept - begin))
    return speech if is_plain else np.concatenate((silences[0], speech, silences[1])), tuple(spans)

"""A line's pieces: cut from its normalized text, each with its prompt, and joined from their best takes."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, count

import numpy as np

from ...postprocess.checks import Waveform
from ...postprocess.join import LineJoin, concatenate
from ..decode.buffers import LineFrames
from ..decode.rows import Decoded, Guard, LineRequest
from ..model.model import Model
from ..options import IGNORE, GenerateOptions, Sampling
from ..text.duration import expected_frames, longest_frames, minimum_frames, shortest_frames
from ..text.normalize import NormalizedText, Normalizer, join_normalized
from ..text.pieces import ArrivingPieces
from ..text.pronunciation import Reading, mark_notes, replaced, shown_text
from ..text.split import read_pauses, without_pauses
from ..voice.prompt import Prompt, PromptBuilder
from ..words.guard import begins_elsewhere
from .lines import CAP, ECHO, ENDS, WORDS, WRONG, Line, LineReport, PieceSpan, Spoken, next_seed
from .takes import RetryPolicy, Take, judge_end, wrong_words

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Piece:
    """A part of a line that is decoded by itself, and its take in progress."""

    text: str = ""  # as spoken
    seed: int = 0  # of its first take
    stride: int = 1  # from a take's seed to the next take's
    pause_s: float = 0.0  # seconds of silence before it
    after_s: float = 0.0  # and after it; only for a line's last piece
    prompt: Prompt = field(init=False, repr=False)  # since it was added to its line
    take: Take | None = None  # the best so far
    # The take in progress
    frames: LineFrames = field(default_factory=LineFrames)
    ended: str | None = None
    waves: list[np.ndarray] = field(default_factory=list)
    decoded: int = 0  # frames with samples in ``waves``

    @property
    def waiting(self) -> int:
        return len(self.frames) - self.decoded

    def end_take(self) -> tuple[Decoded, np.ndarray]:
        """Return the take in progress and its samples, and forget it."""
        decoded = self.frames.decoded(str(self.ended))
        wave = concatenate(self.waves)
        self.frames, self.ended, self.waves, self.decoded = LineFrames(), None, [], 0
        return decoded, wave


class LinePieces:
    """The pieces of one line, as far as they are known. Use it with the model held (``Synthesizer.session``).

    ``limit`` is the longest piece in characters, 0 for any; ``silence`` the seconds of silence before the next piece.
    A late text is set at its end. ``is_literal``: it is spoken as it is written.
    """

    def __init__(self, line: Line, options: GenerateOptions, builder: PromptBuilder):
        self.line, self.options, self.builder, self.model = line, options, builder, builder.model
        self.pieces: list[Piece] = []
        self.normalizer = normalizer_of(self.model, options)
        self.sampling = options.sampling or self.model.sampling
        self.limit = piece_limit(self.model, options)
        self.is_literal = False
        self.silence = 0.0
        self._numbers = count()  # of split pieces
        self._written: list[str] = []  # the parts between pauses, as they are read
        self._spoken: list[NormalizedText] = []
        self._unread = 0  # parts of the text so far that are not all normalized

    def cut(self) -> None:
        """Add all pieces of a complete text within the line's limit; ValueError for what only a prompt shows."""
        pieces = list(self.split(str(self.line.text), self.normalizer))
        self.end_text(pieces)
        for piece in self.reachable(pieces):
            self.add(piece)

    def split(self, text: str, normalizer: Normalizer) -> Iterator[Piece]:
        """Yield the pieces of the next text, each before the rest is normalized. Pieces do not cross its end."""
        paused = read_pauses(self.line.as_read(text))
        self._unread = len(paused.parts)
        for part, pause_s in zip(paused.parts, paused.pauses_s, strict=False):
            self.silence += pause_s
            self._written.append(part)
            pieces = ArrivingPieces(self.limit)
            for said in normalizer.parts(part, self.line.language):
                self._spoken.append(said)
                yield from self._number(pieces.add(said.text, said.ends))
            self._unread -= 1
            yield from self._number(pieces.end())
        self.silence += paused.pauses_s[-1]

    def _number(self, texts: Sequence[str]) -> Iterator[Piece]:
        for text in texts:
            if any(map(str.isalnum, text)):
                number, before_s, self.silence = next(self._numbers), self.silence, 0.0
                yield Piece(self.normalizer.close(text.strip()), self.line.seed + number, number + 1, before_s)

    def end_text(self, pieces: Sequence[Piece]) -> None:
        """Note that these are all pieces of the text: the seeds of later takes depend on their number."""
        for piece in pieces:
            piece.stride = len(pieces)
        if pieces:
            pieces[-1].after_s = self.silence

    def reachable(self, pieces: Sequence[Piece]) -> list[Piece]:
        """Return the pieces that can begin before the line's limit, however fast the ones before are spoken."""
        most = self.sampling.line_frames
        if most is None or len(pieces) == 1:  # nearly all lines: keep the first audio fast
            return list(pieces)
        begins = accumulate((shortest_frames(piece.text) for piece in pieces), initial=0)
        return [piece for piece, begin in zip(pieces, begins, strict=False) if begin <= most]

    def add(self, piece: Piece, prompt: Prompt | None = None) -> None:
        """Add a piece, with its prompt if it is not that of the piece's text."""
        piece.prompt = prompt or build_piece(self.builder, self.line, piece.text)
        self.pieces.append(piece)

    def request(self, piece: Piece, take: int = 1) -> LineRequest:
        guard = guard_line(piece.prompt, self.options, self.sampling)
        seed = next_seed(piece.seed, piece.stride, take - 1)
        return LineRequest(piece.prompt, guard, seed, None, self.sampling)

    def judge(self, piece: Piece, decoded: Decoded, wave: np.ndarray, number: int = 1) -> Take:
        """Return a take of a piece with how it ended, and its wrong words if that is all."""
        ended, wrong = judge_end(piece.text, decoded, wave, self.model.sample_rate), ""
        if ended == ENDS[0] and self.line.voice.kind == "icl" and begins_elsewhere(decoded.trace, wave):
            ended = ECHO
        if self.options.wrong_words != IGNORE and ended in (ENDS[0], WORDS):
            wrong = wrong_words(self.model, piece.text, decoded)
        return Take(decoded, wave, WORDS if wrong else ended, number, wrong)

    def wrong(self) -> list[Piece]:
        """Return the failed pieces that another seed may mend, unless the line's limit cuts them off."""
        policy = RetryPolicy(self.options.retries, self.sampling.max_frames)
        left, wrong = self.sampling.line_frames or math.inf, []
        for piece in self.pieces:
            frames = 0 if piece.take is None else len(piece.take.decoded.codes)
            left -= frames
            if piece.take is not None and left > 0 and policy.is_wrong(piece.take.ended, frames):
                wrong.append(piece)
        return wrong

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The parts of the text that are read as something else."""
        return () if self.is_literal else self.line.find_readings(str(self.line.text))

    @property
    def normalized(self) -> NormalizedText:
        """The text as spoken, as far as it is normalized; without pauses if no word differs."""
        text, said = str(self.line.text), join_normalized(self._spoken)
        if self.is_literal:
            return NormalizedText(text)
        if self._unread:
            return said
        if said.text.split() == " ".join(self._written).split():
            # Not ``as_read``: each sentence of a late text may keep its limit, where all together do not.
            read = replaced(text, self.readings, [one.read for one in self.readings])
            said = replace(said, text=without_pauses(read))
        return replace(said, notes=(*said.notes, *mark_notes(text)))

    @property
    def text_tokens(self) -> int:
        return sum(piece.prompt.text_tokens for piece in self.pieces)


def expected_of(pieces: Sequence[Piece]) -> int:
    return sum(expected_frames(piece.prompt.text_tokens) for piece in pieces)


def build_piece(builder: PromptBuilder, line: Line, text: str) -> Prompt:
    """Return the prompt of a piece; if the checkpoint needs it, with a minimum length."""
    prompt = builder.build(text, line.voice, line.language, line.instruct)
    if not builder.model.profile.hold_end:
        return prompt
    return replace(prompt, min_frames=minimum_frames(text, line.voice.kind == "icl"))


def guard_line(prompt: Prompt, options: GenerateOptions, sampling: Sampling) -> Guard:
    """Return a piece's limits: the sampling's cap, and with ``options.guard`` the text's and the loop detector."""
    text_limit = longest_frames(prompt.text_tokens) if options.guard else sampling.max_frames
    return Guard(min(sampling.max_frames, text_limit), detect_loops=options.guard)


def normalizer_of(model: Model, options: GenerateOptions) -> Normalizer:
    return Normalizer(model.profile.normalize if options.normalize == "auto" else "")


def piece_limit(model: Model, options: GenerateOptions) -> int:
    """Return the longest piece in characters, 0 for any, with room for a full stop if one may be added."""
    limit = min(options.split_chars, model.profile.longest_piece)
    return limit - 1 if limit and normalizer_of(model, options).language else limit


def text_as_spoken(line: Line, text: NormalizedText) -> str:
    """Return a line's text as spoken; "" if that is its text as people read it."""
    return "" if text.text.split() == shown_text(str(line.text)).split() else text.text


WHAT_HAPPENED = {
    "echo": "begins with words of its reference",
    "words": "has wrong words",
    "cap": "ran into its limit",
    "loop": "repeated itself",
    "early": "ended before its text can have been spoken",
    "silent": "is silent",
    "error": "could not be made",
}
WORDS_DIFFER = "recognised words differ from the text"


def assemble(parts: LinePieces, engine: str, stopped: str | None = None) -> Spoken:
    """Return a line from the takes of its pieces; pieces without a take are left out.

    ``stopped``: one of ``lines.STOPPED`` for a line that ended so: its samples so far are joined.
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

"""Turn a line's text into pieces: normalized, cut, each with its prompt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from ..decode.buffers import LineFrames
from ..decode.request import Guard, LineRequest
from ..decode.rows import Decoded
from ..model.model import Model
from ..options import IGNORE, GenerateOptions, Sampling
from ..text.duration import expected_frames, longest_frames, minimum_frames, shortest_frames
from ..text.normalize import NormalizedText, Normalizer, join_normalized
from ..text.pauses import read_pauses, without_pauses
from ..text.pieces import split_arriving
from ..text.pronunciation import Reading, mark_notes, replaced, shown_text
from ..voice.prompt import Prompt, PromptBuilder
from .lines import Line
from .takes import ECHO, ENDS, WORDS, RetryPolicy, Take, begins_elsewhere, judge_end, next_seed
from .word_times import wrong_words

NO_SAMPLES = np.zeros(0, dtype=np.float32)


@dataclass(eq=False)
class Piece:
    """A part of a line that is decoded by itself, and its take in progress."""

    text: str = ""  # as spoken
    seed: int = 0  # of its first take
    stride: int = 1  # from a take's seed to the next take's
    pause_s: float = 0.0  # seconds of silence before it
    after_s: float = 0.0  # and after it; only for a line's last piece
    made: Prompt | None = None  # None until it is built
    take: Take | None = None  # the best so far
    # The take in progress
    frames: LineFrames = field(default_factory=LineFrames)
    ended: str | None = None
    waves: list[np.ndarray] = field(default_factory=list)
    decoded: int = 0  # frames with samples in ``waves``
    silence: int = 0  # samples before the piece that have not been sent

    @property
    def prompt(self) -> Prompt:
        assert self.made is not None
        return self.made

    @property
    def waiting(self) -> int:
        return len(self.frames) - self.decoded

    def drop_waiting(self) -> None:
        self.frames.cut(self.decoded)

    def end_take(self) -> tuple[Decoded, np.ndarray]:
        """Return the take in progress and its samples, and forget it."""
        made = self.frames.decoded(str(self.ended))
        wave = concatenate(self.waves)
        self.frames, self.ended, self.waves, self.decoded = LineFrames(), None, [], 0
        return made, wave


def concatenate(waves: Sequence[np.ndarray]) -> np.ndarray:
    """Return the waves joined, float32 ``[T]``; T may be 0. A single one is not copied."""
    parts = list(filter(len, waves))
    return parts[0] if len(parts) == 1 else np.concatenate([NO_SAMPLES, *parts])


@dataclass
class LinePieces:
    """The pieces of one line, as far as they are known. Use it with the model held (``Synthesizer.session``).

    ``limit`` is the longest piece in characters, 0 for any. ``said``, ``readings`` and a late text are set at its
    end.
    """

    line: Line
    options: GenerateOptions
    builder: PromptBuilder
    pieces: list[Piece] = field(default_factory=list)
    said: NormalizedText = field(default_factory=lambda: NormalizedText(""))
    readings: tuple[Reading, ...] = ()

    def __post_init__(self) -> None:
        self.model = self.builder.model
        self.normalizer = normalizer_of(self.model, self.options)
        self.sampling = self.options.sampling or self.model.sampling
        self.limit = piece_limit(self.model, self.options)
        self.cutter = LineCutter(self.line, self.limit)

    def cut(self) -> None:
        """Add all pieces of a complete text within the line's limit; ValueError for what only a prompt shows."""
        pieces = list(self.cutter.cut(str(self.line.text), self.normalizer))
        self.end_text(pieces)
        for piece in _within_reach(pieces, self.sampling.line_frames):
            self.add(piece)

    def end_text(self, pieces: Sequence[Piece]) -> None:
        """Note that the text is over; ``pieces``: all of it, on which later takes' seeds depend, or none if cut off."""
        for piece in pieces:
            piece.stride = len(pieces)
        if pieces:
            pieces[-1].after_s = self.cutter.silence
        text = str(self.line.text)
        self.readings, self.said = self.line.find_readings(text), self.cutter.said(text)

    def drop_unreachable(self) -> None:
        """Drop the pieces beyond the line's limit, when all have been added."""
        self.pieces = _within_reach(self.pieces, self.sampling.line_frames)

    def add(self, piece: Piece) -> None:
        if piece.made is None:
            piece.made = build_piece(self.builder, self.line, piece.text)
        self.pieces.append(piece)

    def request(self, piece: Piece, take: int = 1) -> LineRequest:
        guard = guard_line(piece.prompt, self.options, self.sampling)
        return LineRequest(
            piece.prompt, guard, next_seed(piece.seed, piece.stride, take - 1), None, self.sampling
        )

    def judge(self, piece: Piece, decoded: Decoded, wave: np.ndarray, number: int = 1) -> Take:
        """Return a take of a piece with how it ended, and its wrong words if that is all."""
        ended = judge_end(piece.text, decoded, wave, self.model.sample_rate)
        if ended == ENDS[0] and self.line.voice.kind == "icl" and begins_elsewhere(decoded, wave):
            ended = ECHO
        if self.options.wrong_words == IGNORE or ended not in (ENDS[0], WORDS):
            return Take(decoded, wave, ended, number)
        wrong = wrong_words(self.model, piece.text, decoded)
        return Take(decoded, wave, WORDS if wrong else ended, number, wrong)

    def wrong(self) -> list[Piece]:
        """Return the pieces that went wrong and that another seed may mend, unless the line's limit cuts them off."""
        takes = [(piece, piece.take) for piece in self.pieces if piece.take is not None]
        counts = [len(take.decoded.codes) for _, take in takes]
        most, ends = self.sampling.line_frames or math.inf, accumulate(counts)
        policy = RetryPolicy(self.options.retries, self.sampling.max_frames)
        return [
            piece
            for (piece, take), count, end in zip(takes, counts, ends, strict=True)
            if end < most and policy.is_wrong(take.ended, count)
        ]

    @property
    def text_tokens(self) -> int:
        return sum(piece.prompt.text_tokens for piece in self.pieces)


def expected_of(pieces: Sequence[Piece]) -> int:
    return sum(expected_frames(piece.prompt.text_tokens) for piece in pieces)


class LineCutter:
    """Cuts the text of a line, complete or sentence by sentence, into pieces of at most ``limit`` characters.

    Piece k has the line's seed plus k. ``silence`` is the seconds of silence before the next piece. ``unread``: parts
    of the text so far that are not all normalized.
    """

    def __init__(self, line: Line, limit: int):
        self._line, self._limit = line, limit
        self._pieces = 0
        self._written: list[str] = []  # the parts between pauses, as they are read
        self._said: list[NormalizedText] = []
        self.unread = 0
        self.silence = 0.0

    def cut(self, text: str, normalizer: Normalizer) -> Iterator[Piece]:
        """Yield the pieces of the next text, each before the rest is normalized. Pieces do not cross its end."""
        paused = read_pauses(self._line.as_read(text))
        self.unread = len(paused.parts)
        for part, pause_s in zip(paused.parts, paused.pauses_s, strict=False):
            self.silence += pause_s
            for words in split_arriving(self._write_out(part, normalizer), self._limit):
                if any(char.isalnum() for char in words):
                    seed, stride = self._line.seed + self._pieces, self._pieces + 1
                    piece = Piece(normalizer.close(words), seed, stride, self.silence)
                    self._pieces, self.silence = stride, 0.0
                    yield piece
        self.silence += paused.pauses_s[-1]

    def _write_out(self, part: str, normalizer: Normalizer) -> Iterator[tuple[str, bool]]:
        self._written.append(part)
        for said in normalizer.parts(part, self._line.language):
            self._said.append(said)
            yield said.text, said.ends
        self.unread -= 1

    def said(self, text: str) -> NormalizedText:
        """Return the line's ``text`` as spoken, as far as it is normalized; without pauses if no word differs."""
        said = join_normalized(self._said)
        if self.unread:
            return said
        if said.text.split() == " ".join(self._written).split():
            # Not ``as_read``: each sentence of a late text may keep its limit, where all together do not.
            readings = self._line.find_readings(text)
            said = replace(
                said, text=without_pauses(replaced(text, readings, [one.read for one in readings]))
            )
        return replace(said, notes=(*said.notes, *mark_notes(text)))


def _within_reach(pieces: Sequence[Piece], most: int | None) -> list[Piece]:
    """Return the pieces that can begin before the line's limit, however fast the ones before are spoken."""
    if most is None or len(pieces) == 1:  # nearly all lines: keep the first audio fast
        return list(pieces)
    begins = accumulate((shortest_frames(piece.text) for piece in pieces), initial=0)
    return [piece for piece, begin in zip(pieces, begins, strict=False) if begin <= most]


def build_piece(builder: PromptBuilder, line: Line, text: str) -> Prompt:
    """Return the prompt of a piece; if the checkpoint needs it, with a minimum length."""
    prompt = builder.build(text, line.voice, line.language, line.instruct)
    if not builder.model.profile.hold_end:
        return prompt
    return replace(prompt, min_frames=minimum_frames(text, line.voice.kind == "icl"))


def guard_line(prompt: Prompt, options: GenerateOptions, sampling: Sampling) -> Guard:
    """Return a piece's guard: the sampling's cap, and with ``options.guard`` the text's and the loop detector."""
    if not options.guard:
        return Guard(sampling.max_frames, detect_loops=False)
    return Guard(min(sampling.max_frames, longest_frames(prompt.text_tokens)))


def normalizer_of(model: Model, options: GenerateOptions) -> Normalizer:
    return Normalizer(model.profile.normalize if options.normalize == "auto" else "")


def piece_limit(model: Model, options: GenerateOptions) -> int:
    """Return the longest piece in characters, 0 for any, with room for a full stop if one may be added."""
    limit = min(options.split_chars, model.profile.longest_piece)
    return limit - 1 if limit and normalizer_of(model, options).language else limit


def text_as_spoken(line: Line, text: NormalizedText) -> str:
    """Return a line's text as spoken; "" if that is its text as people read it."""
    return "" if text.text.split() == shown_text(str(line.text)).split() else text.text

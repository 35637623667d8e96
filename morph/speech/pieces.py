"""Turn a line's text into pieces: normalized, cut, each with its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..decode.decoded import Decoded
from ..decode.guard import Guard
from ..decode.request import LineRequest
from ..model.model import Model
from ..options import IGNORE, GenerateOptions, Sampling
from ..text.duration import expected_frames, held_frames, longest_frames, shortest_frames
from ..text.normalize import Normalizer, SpokenText
from ..text.pronunciation import Reading, shown_text
from ..voice.prompt import Prompt, PromptBuilder
from .echo import begins_elsewhere
from .lines import Line
from .piece import Piece
from .retries import RetryPolicy
from .takes import ECHO, ENDS, WORDS, Take, judge_end
from .text_cutter import cut_line
from .wrong_words import wrong_words


@dataclass
class LinePieces:
    """The pieces of one line, as far as they are known. Use it with the model held (``Synthesizer.session``).

    ``limit`` is the longest piece in characters, 0 for any. ``said``, ``readings`` and a late text are set at its
    end.
    """

    line: Line
    options: GenerateOptions
    builder: PromptBuilder
    normalizer: Normalizer
    pieces: list[Piece] = field(default_factory=list)
    said: SpokenText = field(default_factory=lambda: SpokenText(""))
    readings: tuple[Reading, ...] = ()

    def __post_init__(self) -> None:
        self.model = self.builder.model
        self.sampling = self.options.sampling or self.model.sampling
        self.limit = piece_limit(self.model, self.options)
        self.policy = RetryPolicy(self.options.retries, self.sampling.max_frames)

    @classmethod
    def open(cls, builder: PromptBuilder, line: Line, options: GenerateOptions) -> LinePieces:
        return cls(line, options, builder, normalizer_of(builder.model, options))

    def cut(self) -> None:
        """Add all pieces of a complete text within the line's limit; ValueError for what only a prompt shows."""
        self.said, pieces = cut_line(self.line, self.normalizer, self.limit)
        self.readings = self.line.find_readings(str(self.line.text))
        for piece in _within_reach(pieces, self.sampling.line_frames):
            self.add(piece)

    def add(self, piece: Piece) -> None:
        if piece.made is None:
            piece.made = build_piece(self.builder, self.line, piece.text)
        self.pieces.append(piece)

    def request(self, piece: Piece, take: int = 1) -> LineRequest:
        guard = guard_line(piece.prompt, self.options, self.sampling)
        return LineRequest(piece.prompt, guard, piece.seed_of(take), None, self.sampling)

    def text_of(self, index: int) -> str:
        """Return the text of a piece as spoken; of late text, what has come so far."""
        return self.pieces[index].text

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
        most, frames, again = self.sampling.line_frames, 0, []
        for piece in self.pieces:
            if piece.take is None:
                continue
            frames += len(piece.take.decoded.codes)
            is_cut = most is not None and frames >= most
            if not is_cut and self.policy.is_wrong(piece.take.ended, len(piece.take.decoded.codes)):
                again.append(piece)
        return again

    @property
    def expected(self) -> int:
        return expected_of(self.pieces)

    @property
    def text_tokens(self) -> int:
        return sum(piece.prompt.text_tokens for piece in self.pieces)


def expected_of(pieces: Sequence[Piece]) -> int:
    return sum(expected_frames(piece.prompt.text_tokens) for piece in pieces)


def _within_reach(pieces: Sequence[Piece], most: int | None) -> list[Piece]:
    """Return the pieces that can begin before the line's limit, however fast the ones before are spoken."""
    if most is None or len(pieces) == 1:  # nearly all lines: keep the first audio fast
        return list(pieces)
    reached, frames = [], 0
    for piece in pieces:
        if frames > most:
            break
        reached.append(piece)
        frames += shortest_frames(piece.text)
    return reached


def build_piece(builder: PromptBuilder, line: Line, text: str) -> Prompt:
    """Return the prompt of a piece; if the checkpoint needs it, with a minimum length."""
    prompt = builder.build(text, line.voice, line.language, line.instruct)
    if not builder.model.profile.hold_end:
        return prompt
    return replace(prompt, min_frames=held_frames(text, line.voice.kind == "icl"))


def guard_line(prompt: Prompt, options: GenerateOptions, sampling: Sampling) -> Guard:
    """Return a piece's guard: the sampling's cap, and with ``options.guard`` the text's and the loop detector."""
    if not options.guard:
        return Guard(sampling.max_frames, detect_loops=False)
    return Guard(min(sampling.max_frames, longest_frames(prompt.text_tokens)))


def normalizer_of(model: Model, options: GenerateOptions) -> Normalizer:
    return Normalizer(_written_language(model, options))


def _written_language(model: Model, options: GenerateOptions) -> str:
    return model.profile.normalize if options.normalize == "auto" else ""


def piece_limit(model: Model, options: GenerateOptions) -> int:
    """Return the longest piece in characters, 0 for any, with room for a full stop if one may be added."""
    limit = min(options.split_chars, model.profile.longest_piece)
    return limit - 1 if limit and _written_language(model, options) else limit


def text_as_spoken(line: Line, text: SpokenText) -> str:
    """Return a line's text as spoken; "" if that is its text as people read it."""
    return "" if text.text.split() == shown_text(str(line.text)).split() else text.text

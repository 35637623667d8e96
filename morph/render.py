"""Lines to waveforms: splitting, ordering, batches, seeds, progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..postprocess.join import join
from .eager import Decoded
from .guard import Guard, text_cap
from .model import Model
from .options import GenerateOptions, Sampling
from .prompt import Prompt, PromptBuilder, check_language
from .text import split_text
from .voice import Voice, check_voice

log = logging.getLogger(__name__)

OnFrame = Callable[[int, int], None]
"""Called with (frames done, frames expected) once a frame; what it raises cancels the rendering."""


@dataclass(frozen=True)
class Line:
    """One utterance. ``instruct`` overrides the voice's; ``name`` is the character, for reports."""

    text: str
    voice: Voice
    language: str = "auto"
    seed: int = 0
    instruct: str | None = None
    name: str = ""


@dataclass(frozen=True)
class LineReport:
    """How a line went. ``ended`` is "eos", "cap" (ran into its limit) or "loop" (repeated itself)."""

    name: str
    text: str
    frames: int
    seconds: float
    ended: str
    pieces: int


@dataclass(frozen=True)
class Spoken:
    """A rendered line: float32 ``[T]``, its rate in Hz, its report."""

    waveform: np.ndarray
    sample_rate: int
    report: LineReport


@dataclass(frozen=True)
class _Piece:
    """A part of a line that is decoded by itself."""

    line: int
    text: str
    seed: int


@dataclass
class Progress:
    """Counts frames for ``report``, and expects as many as texts of so many ``tokens`` take: about 4 a token."""

    tokens: list[int]
    report: OnFrame | None
    done: int = 0
    expected: int = field(init=False)

    def __post_init__(self) -> None:
        self.expected = sum(10 + 4 * count for count in self.tokens)

    def add(self, frames: int) -> None:
        """Take frames that were made; 0 only looks whether to go on."""
        self.done += frames
        self.expected = max(self.expected, self.done + 1)
        if self.report is not None:
            self.report(self.done, self.expected)


def render_lines(
    model: Model,
    lines: Sequence[Line],
    options: GenerateOptions | None = None,
    on_frame: OnFrame | None = None,
) -> list[Spoken]:
    """Speak lines; give them in the order asked for.

    Everything that can be checked is checked before the first frame is made. A line's seed gives the same draws
    whatever batch it rides in (the arithmetic of another batch size may round differently, and part a line's ways);
    the two engines draw differently.

    Raises:
        ValueError: for a text, a language, a voice, an instruction or a decoding that cannot serve.
    """
    options = options or GenerateOptions()
    sampling = options.sampling or model.sampling
    model.engine.pick(model, options.decoding)  # refuses what it cannot do
    pieces = _split(model, lines, options)
    builder = PromptBuilder(model)
    prompts = [_prompt(builder, lines[piece.line], piece) for piece in pieces]
    progress = Progress([prompt.text_tokens for prompt in prompts], on_frame)
    decoded = _decode(model, pieces, prompts, options, sampling, progress)
    waves = model.engine.decode_waveforms(
        model,
        [one.codes for one in decoded],
        [lines[piece.line].voice.ref_codes for piece in pieces],
        lambda: progress.add(0),
        decoding=options.decoding,
    )
    return [
        _assemble(model, index, line, pieces, decoded, waves, options) for index, line in enumerate(lines)
    ]


def _split(model: Model, lines: Sequence[Line], options: GenerateOptions) -> list[_Piece]:
    """Check every line, and cut long texts into pieces; piece k of a line has the line's seed plus k."""
    if not lines:
        raise ValueError("there is no line to speak: type a text")
    pieces = []
    for index, line in enumerate(lines):
        check_language(model, line.language)
        check_voice(model, line.voice, line.instruct)
        texts = split_text(line.text, options.split_chars)
        pieces += [_Piece(index, text, line.seed + number) for number, text in enumerate(texts)]
    return pieces


def _prompt(builder: PromptBuilder, line: Line, piece: _Piece) -> Prompt:
    return builder.build(piece.text, line.voice, line.language, line.instruct)


def _decode(
    model: Model,
    pieces: Sequence[_Piece],
    prompts: Sequence[Prompt],
    options: GenerateOptions,
    sampling: Sampling,
    progress: Progress,
) -> list[Decoded]:
    """Decode pieces, the longest work first, so that what runs last is short and lines in a batch are alike."""
    order = sorted(range(len(pieces)), key=lambda index: -prompts[index].text_tokens)
    results = model.engine.decode_lines(
        model,
        [prompts[index] for index in order],
        [guard_line(prompts[index], options, sampling) for index in order],
        options.seq_groups,
        sampling,
        [pieces[index].seed for index in order],
        options.batch_size,
        progress.add,
        decoding=options.decoding,
        tail=options.tail,
    )
    decoded = dict(zip(order, results, strict=True))
    return [decoded[index] for index in range(len(pieces))]


def guard_line(prompt: Prompt, options: GenerateOptions, sampling: Sampling) -> Guard:
    """The guard of one line: the sampling's cap alone, or also the text's and the loop detector."""
    if not options.guard:
        return Guard(sampling.max_frames, detect_loops=False)
    return Guard(min(sampling.max_frames, text_cap(prompt.text_tokens)))


def _assemble(
    model: Model,
    index: int,
    line: Line,
    pieces: Sequence[_Piece],
    decoded: Sequence[Decoded],
    waves: Sequence[np.ndarray],
    options: GenerateOptions,
) -> Spoken:
    """Join a line's pieces and report how it ended: a piece that did not end by itself speaks for the line."""
    own = [number for number, piece in enumerate(pieces) if piece.line == index]
    ends = [decoded[number].ended for number in own]
    ended = next((end for end in ends if end != "eos"), "eos")
    waveform, _ = join(
        [waves[number] for number in own], model.sample_rate, crossfade_ms=options.crossfade_ms
    )
    if ended != "eos":
        reason = {"cap": "ran into its limit", "loop": "repeated itself"}[ended]
        log.warning("line %d (%.40r) %s and was ended; try another seed", index + 1, line.text, reason)
    frames = sum(len(decoded[number].codes) for number in own)
    seconds = len(waveform) / model.sample_rate
    return Spoken(
        waveform, model.sample_rate, LineReport(line.name, line.text, frames, seconds, ended, len(own))
    )

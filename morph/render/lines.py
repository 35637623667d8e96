"""Lines to waveforms: what is spoken of a text, pieces, batches, seeds, takes, progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...postprocess.join import Spacing, join
from ..decode.guard import Guard, text_cap
from ..engine import Engine
from ..model.model import Model
from ..options import GenerateOptions, Sampling
from ..synthesizer import Synthesizer
from ..text.duration import held_frames
from ..text.encoding import check_encodable
from ..text.normalize import Normalizer, SpokenText
from ..text.split import check_text, split_text
from ..voice.prompt import Prompt, PromptBuilder, check_language
from ..voice.voice import Voice, check_voice
from .progress import OnFrame, Progress
from .takes import WRONG, Take, judge_end

log = logging.getLogger(__name__)

WHAT_HAPPENED = {
    "cap": "ran into its limit",
    "loop": "repeated itself",
    "early": "ended before its text can have been spoken",
    "silent": "is silent",
}


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
    """How a line went.

    Args:
        name: the character, or "".
        text: as it was given.
        frames: of 80 ms, without the crossfades' overlap taken off.
        seconds: of audio.
        ended: one of ``takes.ENDS``: of the piece that went worst.
        pieces: how many the text was cut into.
        spoken: the text as it was spoken, "" where that is the text itself.
        takes: how often the piece with the most takes was spoken.
        notes: sentences for the user.
    """

    name: str
    text: str
    frames: int
    seconds: float
    ended: str
    pieces: int
    spoken: str = ""
    takes: int = 1
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spoken:
    """A rendered line: float32 ``[T]``, its rate in Hz, its report."""

    waveform: np.ndarray
    sample_rate: int
    report: LineReport


@dataclass(frozen=True)
class _Piece:
    """A part of a line that is decoded by itself. ``stride`` is from its seed to that of its next take."""

    line: int
    text: str
    seed: int
    stride: int

    def seed_of(self, take: int) -> int:
        """The seed of a take, from 1; no two pieces of a line share one."""
        return self.seed + (take - 1) * self.stride


def render_lines(
    synthesizer: Synthesizer,
    lines: Sequence[Line],
    options: GenerateOptions | None = None,
    on_frame: OnFrame | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> list[Spoken]:
    """Speak lines; give them in the order asked for.

    Everything that can be checked is checked before the first frame is made. A line's seed gives the same draws
    whatever batch it rides in (the arithmetic of another batch size may round differently, and change a line's codes);
    the two engines draw differently. Pieces that went wrong are spoken again, see ``GenerateOptions.retries``.

    Args:
        synthesizer: the checkpoint and its engine.
        lines: one or more.
        options: None takes the defaults.
        on_frame: see ``OnFrame``.
        on_phase: called with what begins now, in a few words.

    Raises:
        ValueError: for a text, a language, a voice, an instruction or a decoding that cannot serve.
    """
    options = options or GenerateOptions()
    with synthesizer.session():
        rendering = _Rendering.prepare(synthesizer, lines, options, on_frame)
        takes = rendering.speak(on_phase or (lambda _: None))
        return [rendering.assemble(index, takes) for index in range(len(lines))]


@dataclass
class _Rendering:
    """The lines of one call on their way to speech."""

    model: Model
    engine: Engine
    lines: Sequence[Line]
    options: GenerateOptions
    sampling: Sampling
    texts: list[SpokenText]
    pieces: list[_Piece]
    prompts: list[Prompt]
    progress: Progress

    @classmethod
    def prepare(
        cls,
        synthesizer: Synthesizer,
        lines: Sequence[Line],
        options: GenerateOptions,
        on_frame: OnFrame | None,
    ) -> _Rendering:
        """Check all lines, write out and cut their texts, and build the prompts."""
        model, engine = synthesizer.model, synthesizer.engine
        engine.pick(model, options.decoding)  # refuses what it cannot do
        if not lines:
            raise ValueError("there is no line to speak: type a text")
        for line in lines:
            check_line(model, line)
        progress = Progress([], on_frame)
        writer = normalizer_of(model, options, lambda: progress.add(0))
        limit = piece_limit(model, options)
        texts = [writer.write_out(line.text, line.language) for line in lines]
        pieces = [
            piece
            for index, (line, text) in enumerate(zip(lines, texts, strict=True))
            for piece in cut_pieces(index, line, split_text(text.text, limit), writer)
        ]
        builder = PromptBuilder(model)
        prompts = [build_piece(builder, lines[piece.line], piece.text) for piece in pieces]
        progress.expect([prompt.text_tokens for prompt in prompts])
        sampling = options.sampling or model.sampling
        return cls(model, engine, lines, options, sampling, texts, pieces, prompts, progress)

    def speak(self, on_phase: Callable[[str], None]) -> list[Take]:
        """Give the best take of every piece, in their order."""
        on_phase(f"speaking {_count(len(self.lines), 'line')}")
        takes = self._take(range(len(self.pieces)), 1)
        for number in range(2, self.options.retries + 2):
            again = [index for index, take in enumerate(takes) if self._can_be_better(index, take)]
            if not again:
                break
            on_phase(f"{_count(len(again), 'piece')} went wrong: take {number}")
            self.progress.expect([self.prompts[index].text_tokens for index in again])
            for index, take in zip(again, self._take(again, number), strict=True):
                takes[index] = (
                    take if take.better_than(takes[index]) else replace(takes[index], number=number)
                )
        return takes

    def _can_be_better(self, index: int, take: Take) -> bool:
        """Whether another seed may help: not where a limit of the user's own ended the line, or its guard is off."""
        if take.ended == "cap":
            limit = text_cap(self.prompts[index].text_tokens)
            return self.options.guard and limit <= self.sampling.max_frames
        return take.ended in WRONG

    def _take(self, indices: Sequence[int], number: int) -> list[Take]:
        """Speak these pieces once, the longest work first, so that what runs last is short."""
        order = sorted(indices, key=lambda index: -self.prompts[index].text_tokens)
        prompts = [self.prompts[index] for index in order]
        results = self.engine.decode_lines(
            self.model,
            prompts,
            [guard_line(prompt, self.options, self.sampling) for prompt in prompts],
            self.options.seq_groups,
            self.sampling,
            [self.pieces[index].seed_of(number) for index in order],
            self.options.batch_size,
            self.progress.add,
            decoding=self.options.decoding,
            tail=self.options.tail,
        )
        by_index = dict(zip(order, results, strict=True))
        decoded = [by_index[index] for index in indices]
        waveforms = self.engine.decode_waveforms(
            self.model,
            [one.codes for one in decoded],
            [self.lines[self.pieces[index].line].voice.ref_codes for index in indices],
            lambda: self.progress.add(0),
            decoding=self.options.decoding,
        )
        rate = self.model.sample_rate
        return [
            Take(one, waveform, judge_end(self.pieces[index].text, one, waveform, rate), number)
            for index, one, waveform in zip(indices, decoded, waveforms, strict=True)
        ]

    def assemble(self, index: int, takes: Sequence[Take]) -> Spoken:
        """Join a line's pieces and report how it went: its worst piece speaks for the line."""
        line, text, rate = self.lines[index], self.texts[index], self.model.sample_rate
        own = [take for piece, take in zip(self.pieces, takes, strict=True) if piece.line == index]
        waveform, _ = join(
            [take.waveform for take in own], rate, Spacing(crossfade_ms=self.options.crossfade_ms)
        )
        ended = next((take.ended for take in own if take.ended in WRONG), "eos")
        if ended in WRONG:
            log.warning("line %d (%.40r) %s; try another seed", index + 1, line.text, WHAT_HAPPENED[ended])
        report = LineReport(
            line.name,
            line.text,
            frames=sum(len(take.decoded.codes) for take in own),
            seconds=len(waveform) / rate,
            ended=ended,
            pieces=len(own),
            spoken="" if text.text.split() == line.text.split() else text.text,
            takes=max(take.number for take in own),
            notes=text.notes,
        )
        return Spoken(waveform, rate, report)


def check_line(model: Model, line: Line) -> None:
    """Raise ValueError when a line cannot be spoken by this model."""
    check_text(line.text)
    check_encodable(line.instruct or "", "instruct")
    check_language(model, line.language)
    check_voice(model, line.voice, line.instruct)


def normalizer_of(
    model: Model, options: GenerateOptions, on_sentence: Callable[[], None] | None = None
) -> Normalizer:
    """What writes out the texts of a rendering, as the checkpoint needs it and the options allow."""
    return Normalizer(model.profile.normalize if options.normalize == "auto" else "", on_sentence)


def piece_limit(model: Model, options: GenerateOptions) -> int:
    """The longest piece in characters, 0 for any length."""
    return min(options.split_chars, model.profile.longest_piece)


def cut_pieces(index: int, line: Line, parts: Sequence[str], writer: Normalizer) -> list[_Piece]:
    """A line's pieces: piece k has the line's seed plus k, and parts without anything to speak are left out."""
    texts = [writer.close(part) for part in parts if any(char.isalnum() for char in part)]
    return [_Piece(index, part, line.seed + number, len(texts)) for number, part in enumerate(texts)]


def build_piece(builder: PromptBuilder, line: Line, text: str) -> Prompt:
    """The prompt of a piece of a line, held from ending too early where the checkpoint needs that."""
    prompt = builder.build(text, line.voice, line.language, line.instruct)
    if not builder.model.profile.hold_end:
        return prompt
    return replace(prompt, min_frames=held_frames(text, line.voice.kind == "icl"))


def guard_line(prompt: Prompt, options: GenerateOptions, sampling: Sampling) -> Guard:
    """The guard of one line: the sampling's cap alone, or also the text's and the loop detector."""
    if not options.guard:
        return Guard(sampling.max_frames, detect_loops=False)
    return Guard(min(sampling.max_frames, text_cap(prompt.text_tokens)))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

"""Lines to waveforms: normalised text, pieces, batches, seeds, takes, progress."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...postprocess.checks import Waveform
from ...postprocess.ends import trim_ends
from ...postprocess.join import Spacing, Span, join
from ..decode.decoded import Decoded
from ..decode.guard import Guard
from ..decode.request import LineRequest
from ..engine import Choice
from ..hearing.words import HeardWords
from ..model.model import Model
from ..options import GenerateOptions, Sampling
from ..synthesizer import Synthesizer
from ..text.duration import held_frames, longest_frames, shortest_frames
from ..text.encoding import check_encodable
from ..text.normalize import Normalizer, SpokenText
from ..text.pauses import check_spoken, read_pauses, without_pauses
from ..text.split import split_text
from ..voice.prompt import Prompt, PromptBuilder, check_language, check_streams_text
from ..voice.voice import Voice, check_voice
from .progress import OnFrame, Progress
from .takes import CAP, WRONG, Take, judge_end

log = logging.getLogger(__name__)

WHAT_HAPPENED = {
    "cap": "ran into its limit",
    "loop": "repeated itself",
    "early": "ended before its text can have been spoken",
    "silent": "is silent",
    "error": "could not be made",
}
HEARD_OTHERWISE = "recognised words differ from the text"
LAYOUTS = ("sentence", "token")


@dataclass(frozen=True)
class Line:
    """One utterance.

    Args:
        text: what to speak; ``[pause 0.4]`` in it is silence (see ``text/pauses.py``). In streams also an iterator of
            strings, as a language model gives them: it is read in a thread of its own, once, and closed (``close()``,
            as generators have) when the line or the stream ends.
        voice: who speaks.
        language: one of the checkpoint's, or "auto".
        seed: of its random stream.
        instruct: overrides the voice's.
        name: the character, for reports.
        layout: of a text that comes in parts. "sentence": each sentence is a piece, spoken as soon as it is complete.
            "token": one piece, spoken word by word as they come; only for voices cloned as x-vector. Figures are not
            written out in it, not even for checkpoints that need that (see ``GenerateOptions.normalize``), it is
            not split, however long it is, and has no pauses.
    """

    text: str | Iterable[str]
    voice: Voice
    language: str = "auto"
    seed: int = 0
    instruct: str | None = None
    name: str = ""
    layout: str = LAYOUTS[0]


@dataclass(frozen=True)
class LineReport:
    """How a line went.

    Args:
        name: the character, or "".
        text: as it was given.
        frames: of 80 ms, before crossfades overlap them.
        seconds: of audio.
        ended: one of ``takes.ENDS``: that of the worst piece; or one of ``takes.STOPPED``; or ``takes.ERROR``.
        pieces: how many the text was cut into.
        spoken: the text as it was spoken, "" if that is the text itself.
        takes: how often the piece with the most takes was spoken.
        notes: sentences for the user.
        from_before: whether it was made by an earlier rendering (see ``line_cache.py``).
        error: why it could not be made, where ``ended`` says so.
        heard: what a speech recogniser heard in it, where one was asked (see ``word_check.py``).
        device: which device made it, where that could be one of several (see ``shared_renderer.py``).
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
    from_before: bool = False
    error: str = ""
    heard: HeardWords | None = None
    device: str = ""


@dataclass(frozen=True)
class PieceSpan:
    """A piece of a line: its text as spoken, and its samples ``start`` to ``end`` (excluded) in the line's waveform.

    Pauses are between the spans. Where two pieces are crossfaded, their spans overlap by the length of the fade.
    """

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Spoken:
    """A rendered line.

    Args:
        waveform: float32 ``[T]``.
        sample_rate: in Hz.
        report: how it went.
        spans: its pieces in order; together they cover the waveform, but for its pauses.
        engine: which engine made it, why and in which way, as one line for reports.
        take: which take of the line it is, where a word check kept another than the first (see ``take_seed``).
    """

    waveform: np.ndarray
    sample_rate: int
    report: LineReport
    spans: tuple[PieceSpan, ...] = ()
    engine: str = ""
    take: int = 1


@dataclass(frozen=True)
class Piece:
    """A part of a line that is decoded by itself.

    Args:
        line: its index.
        text: as it is spoken.
        seed: of its first take.
        stride: the distance from its seed to that of its next take.
        pause_s: seconds of silence before it.
        after_s: and after it; only a line's last piece has any.
    """

    line: int
    text: str
    seed: int
    stride: int
    pause_s: float = 0.0
    after_s: float = 0.0

    def seed_of(self, take: int) -> int:
        """Return the seed of a take, counted from 1; no two pieces of a line share one."""
        return self.seed + (take - 1) * self.stride


def render_lines(
    synthesizer: Synthesizer,
    lines: Sequence[Line],
    options: GenerateOptions | None = None,
    on_frame: OnFrame | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> list[Spoken]:
    """Speak lines; return them in the order given.

    Everything that can be checked is checked before the first frame is made. A line's seed gives the same samples in
    any batch, except that the arithmetic of another batch size may round differently and change a line's codes. The
    two engines use different random generators. Pieces that went wrong are spoken again, see
    ``GenerateOptions.retries``.

    Args:
        synthesizer: the checkpoint and its engine.
        lines: one or more.
        options: None takes the defaults.
        on_frame: see ``OnFrame``.
        on_phase: called with a few words when a phase begins.

    Raises:
        ValueError: for a text, language, voice, instruction or decoding that cannot be used.
    """
    check_complete(lines)
    check_lines(synthesizer.model, lines)
    with synthesizer.session():
        rendering = Rendering.prepare(synthesizer, lines, options or GenerateOptions(), Progress(on_frame))
        takes = rendering.speak(on_phase or (lambda _: None))
        return rendering.assemble(takes)


@dataclass(frozen=True)
class Rendering:
    """The state of one call of ``render_lines``. Hold ``Synthesizer.session`` from ``prepare`` to ``assemble``.

    Lines whose text comes in parts have no pieces at first: ``late_text.py`` adds them.

    One ``choice`` of engine and codec makes codes, waveforms and report. ``pieces`` and ``prompts`` are parallel;
    methods name pieces by their index.
    """

    synthesizer: Synthesizer
    choice: Choice
    lines: list[Line]
    options: GenerateOptions
    texts: list[SpokenText]
    pieces: list[Piece]
    prompts: list[Prompt]
    progress: Progress
    builder: PromptBuilder
    normalizer: Normalizer

    @classmethod
    def prepare(
        cls,
        synthesizer: Synthesizer,
        lines: Sequence[Line],
        options: GenerateOptions,
        progress: Progress,
    ) -> Rendering:
        """Write out and cut the texts of lines that were checked (``check_lines``), and build the prompts.

        Raises:
            ValueError: for what only a prompt shows, and as ``Engine.choose``.
        """
        model = synthesizer.model
        choice = synthesizer.engine.choose(model, options)
        normalizer = normalizer_of(model, options, lambda: progress.add(0))
        limit = piece_limit(model, options)
        read = [cut_line(index, line, normalizer, limit) for index, line in enumerate(lines)]
        most = (options.sampling or model.sampling).line_frames
        texts = [text for text, _ in read]
        pieces = [piece for _, own in read for piece in _within_reach(own, most)]
        builder = synthesizer.engine.prompt_builder(model)
        prompts = [build_piece(builder, lines[piece.line], piece.text) for piece in pieces]
        # Of the first lines that get rows; those of the others are made while the device makes frames.
        for prompt in sorted(prompts, key=_by_length)[: options.batch_size]:
            prompt.make_inputs()
        progress.expect([prompt.text_tokens for prompt in prompts])
        return cls(
            synthesizer, choice, list(lines), options, texts, pieces, prompts, progress, builder, normalizer
        )

    def only(self, indices: Sequence[int]) -> Rendering:
        """Return a rendering of the lines at these indices, in this order. It shares the progress."""
        places = {index: place for place, index in enumerate(indices)}
        own = sorted(
            (places[piece.line], number) for number, piece in enumerate(self.pieces) if piece.line in places
        )
        return replace(
            self,
            lines=[self.lines[index] for index in indices],
            texts=[self.texts[index] for index in indices],
            pieces=[replace(self.pieces[number], line=place) for place, number in own],
            prompts=[self.prompts[number] for _, number in own],
        )

    @property
    def sampling(self) -> Sampling:
        """The options' sampling, or the checkpoint's own."""
        return self.options.sampling or self.synthesizer.model.sampling

    def speak(self, on_phase: Callable[[str], None]) -> list[Take]:
        """Return the best take of every piece, in their order."""
        on_phase(f"speaking {_count(len(self.lines), 'line')}")
        return self.improve(self.take(range(len(self.pieces)), 1, on_phase), on_phase)

    def improve(self, takes: Sequence[Take], on_phase: Callable[[str], None]) -> list[Take]:
        """Speak pieces that went wrong again, as often as the options allow; return the best take of every piece."""
        takes = list(takes)
        for number in range(2, self.options.retries + 2):
            cut = self._cut_off(takes)
            again = [
                index
                for index, take in enumerate(takes)
                if index not in cut and self._can_improve(index, take)
            ]
            if not again:
                break
            on_phase(f"{_count(len(again), 'piece')} went wrong: take {number}")
            self.progress.expect([self.prompts[index].text_tokens for index in again])
            for index, take in zip(again, self.take(again, number, on_phase), strict=True):
                takes[index] = (
                    take if take.better_than(takes[index]) else replace(takes[index], number=number)
                )
        return takes

    def _cut_off(self, takes: Sequence[Take]) -> set[int]:
        """Return the pieces that their lines' limits (``Sampling.line_frames``) cut off or leave out."""
        frames: Counter[int] = Counter()
        cut = set()
        for index, (piece, take) in enumerate(zip(self.pieces, takes, strict=True)):
            frames[piece.line] += len(take.decoded.codes)
            if self.sampling.line_frames is not None and frames[piece.line] >= self.sampling.line_frames:
                cut.add(index)
        return cut

    def _can_improve(self, index: int, take: Take) -> bool:
        """Return whether another seed may help: not if the user's own limit ended the line, or its guard is off."""
        if take.ended == "cap":
            limit = longest_frames(self.prompts[index].text_tokens)
            return self.options.guard and limit <= self.sampling.max_frames
        return take.ended in WRONG

    def take(self, indices: Sequence[int], number: int, on_phase: Callable[[str], None]) -> list[Take]:
        """Speak these pieces once; ``number`` counts the takes from 1 and chooses the seeds."""
        decoded = self.decode(indices, number)
        on_phase("codec")
        return self.judge(indices, decoded, number)

    def requests(self, indices: Sequence[int], number: int) -> list[LineRequest]:
        """Return fresh requests for a take of these pieces."""
        return [
            LineRequest(
                self.prompts[index],
                guard_line(self.prompts[index], self.options, self.sampling),
                self.pieces[index].seed_of(number),
                sampling=self.sampling,
            )
            for index in indices
        ]

    def decode(self, indices: Sequence[int], number: int) -> list[Decoded]:
        """Decode a take of these pieces: the longest first, so that what runs last is short."""
        order = sorted(indices, key=lambda index: _by_length(self.prompts[index]))
        decoded = self.synthesizer.engine.decode(
            self.synthesizer.model,
            self.requests(order, number),
            self.options,
            self.progress.add,
            self.choice,
        )
        by_index = dict(zip(order, decoded, strict=True))
        return [by_index[index] for index in indices]

    def judge(self, indices: Sequence[int], decoded: Sequence[Decoded], number: int) -> list[Take]:
        """Decode the codes of a take to waveforms, and judge how each piece ended."""
        model = self.synthesizer.model
        waveforms = self.synthesizer.engine.decode_waveforms(
            model,
            self.choice,
            [one.codes for one in decoded],
            [self.lines[self.pieces[index].line].voice.ref_codes for index in indices],
            lambda: self.progress.add(0),
        )
        return [
            Take(one, waveform, judge_end(self.pieces[index].text, one, waveform, model.sample_rate), number)
            for index, one, waveform in zip(indices, decoded, waveforms, strict=True)
        ]

    def assemble(self, takes: Sequence[Take], stopped: Mapping[int, str] | None = None) -> list[Spoken]:
        """Return every line, from a take of each piece.

        ``stopped``: one of STOPPED for each line that ended so, by its index; what was made of it is joined.
        """
        own: list[list[tuple[Piece, Take]]] = [[] for _ in self.lines]
        for piece, take in zip(self.pieces, takes, strict=True):
            own[piece.line].append((piece, take))
        ends = stopped or {}
        return [self._assemble(index, parts, ends.get(index)) for index, parts in enumerate(own)]

    def _assemble(self, index: int, own: list[tuple[Piece, Take]], stopped: str | None) -> Spoken:
        """Join the pieces of the line at ``index`` and report how it went, by its worst piece."""
        line, text, rate = self.lines[index], self.texts[index], self.synthesizer.model.sample_rate
        if stopped is not None:
            own = [(piece, take) for piece, take in own if len(take.waveform)]
        count, most = len(own), self.sampling.line_frames
        own = limit_takes(own, most)
        frames = sum(len(take.decoded.codes) for _, take in own)
        is_whole = stopped is None and (most is None or frames < most)
        waveform, spans = join_pieces(own, rate, self.options, is_whole)
        ended = stopped or next((take.ended for _, take in own if take.ended in WRONG), "eos")
        if ended in WRONG:
            log.warning("line %d (%.40r) %s; try another seed", index + 1, line.text, WHAT_HAPPENED[ended])
        report = LineReport(
            line.name,
            str(line.text),
            frames=frames,
            seconds=len(waveform) / rate,
            ended=ended,
            pieces=count,
            spoken=text_as_spoken(line, text),
            takes=max((take.number for _, take in own), default=1),
            notes=text.notes,
        )
        placed = tuple(PieceSpan(piece.text, *span) for (piece, _), span in zip(own, spans, strict=True))
        made = self.synthesizer.engine.describe(self.synthesizer.model, self.choice)
        return Spoken(waveform, rate, report, placed, made)


def limit_takes(own: Sequence[tuple[Piece, Take]], most: int | None) -> list[tuple[Piece, Take]]:
    """Return the takes of a line's pieces that are within ``most`` frames; the last one is marked if any are left out.

    ``most``: see ``Sampling.line_frames``.
    """
    if most is None:
        return list(own)
    kept: list[tuple[Piece, Take]] = []
    for piece, take in own:
        if most <= 0:
            last, end = kept[-1]
            return [*kept[:-1], (last, end if end.ended in WRONG else replace(end, ended=CAP))]
        frames = len(take.decoded.codes)
        kept.append((piece, take if frames <= most else take.begin(most)))
        most -= frames
    return kept


def _within_reach(pieces: Sequence[Piece], most: int | None) -> list[Piece]:
    """Return a line's pieces without those that begin behind its limit however fast the ones before are spoken."""
    reached, frames = [], 0
    for piece in pieces:
        if most is not None and frames > most:
            break
        reached.append(piece)
        frames += shortest_frames(piece.text)
    return reached


def text_as_spoken(line: Line, text: SpokenText) -> str:
    """Return a line's text as it is spoken, "" if that is its text itself."""
    return "" if text.text.split() == without_pauses(str(line.text)).split() else text.text


def check_complete(lines: Sequence[Line]) -> None:
    """Raise ValueError for a line whose text comes in parts."""
    for line in lines:
        if not isinstance(line.text, str):
            raise ValueError(
                f"a line's text is {type(line.text).__name__}, not a string: join it, or speak it with stream_lines"
            )


def check_lines(model: Model, lines: Sequence[Line]) -> None:
    """Raise ValueError when there is no line, or one that this model cannot speak."""
    if not lines:
        raise ValueError("there is no line to speak: type a text")
    for line in lines:
        check_line(model, line)


def check_line(model: Model, line: Line) -> None:
    """Raise ValueError when a line cannot be spoken by this model."""
    if line.layout not in LAYOUTS:
        raise ValueError(f"layout is {line.layout!r}: choose {' or '.join(LAYOUTS)}")
    if isinstance(line.text, str):
        check_spoken(line.text)
    elif line.layout == "token":
        check_streams_text(line.voice)
    check_encodable(line.instruct or "", "instruct")
    check_language(model, line.language)
    check_voice(model, line.voice, line.instruct)


def normalizer_of(
    model: Model, options: GenerateOptions, on_sentence: Callable[[], None] | None = None
) -> Normalizer:
    """Return what writes out the texts of a rendering, as the checkpoint needs it and the options allow."""
    return Normalizer(model.profile.normalize if options.normalize == "auto" else "", on_sentence)


def piece_limit(model: Model, options: GenerateOptions) -> int:
    """Return the longest piece in characters, 0 for any length; where a stop may be added, there is room for it."""
    limit = min(options.split_chars, model.profile.longest_piece)
    return limit - 1 if limit and normalizer_of(model, options).language else limit


def join_pieces(
    own: Sequence[tuple[Piece, Take]], sample_rate: int, options: GenerateOptions, whole: bool = True
) -> tuple[Waveform, list[Span]]:
    """Return the waveform of a line and where its pieces are in it; of a line that never began, no samples.

    ``whole``: whether the line was spoken to its end, where a pause may follow.
    """
    if not own:
        return np.zeros(0, dtype=np.float32), []
    lead, *between = [piece.pause_s for piece, _ in own]
    after = own[-1][0].after_s if whole else 0.0
    [first, *others] = [take.waveform for _, take in own]
    if len(first) and not (others or lead or after or options.trim_ends):
        return first, [
            (0, len(first))
        ]  # most lines: a copy would take as long as all the rest of their assembly
    speech, spans = join(
        [take.waveform for _, take in own], sample_rate, Spacing(between, options.crossfade_ms)
    )
    speech, start = trim_ends(speech, sample_rate) if options.trim_ends else (speech, 0)
    silences = [np.zeros(round(seconds * sample_rate), dtype=np.float32) for seconds in (lead, after)]
    shift, stop = len(silences[0]) - start, start + len(speech)
    # A first or last piece that is silent may have been trimmed away completely.
    placed = [
        (min(max(begin, start), stop) + shift, min(max(end, start), stop) + shift) for begin, end in spans
    ]
    return np.concatenate((silences[0], speech, silences[1])), placed


def cut_line(index: int, line: Line, normalizer: Normalizer, limit: int) -> tuple[SpokenText, list[Piece]]:
    """Return a line's text as it is spoken, and its pieces; nothing of a text that comes in parts."""
    if not isinstance(line.text, str):
        return SpokenText(""), []
    paused = read_pauses(line.text)
    said = [normalizer.write_out(part, line.language) for part in paused.parts]
    pieces: list[Piece] = []
    silence = 0.0
    for text, pause in zip(said, paused.pauses_s, strict=False):
        own = cut_pieces(index, line, split_text(text.text, limit), normalizer, len(pieces))
        silence += pause
        if own:
            pieces += [replace(own[0], pause_s=silence), *own[1:]]
            silence = 0.0
    return join_texts(line.text, paused.parts, said), end_pieces(pieces, silence + paused.pauses_s[-1])


def end_pieces(pieces: Sequence[Piece], after_s: float) -> list[Piece]:
    """Return all pieces of a line, with the silence after the last; later takes' seeds depend on their number."""
    ended = [replace(piece, stride=len(pieces)) for piece in pieces]
    return [*ended[:-1], replace(ended[-1], after_s=after_s)] if ended else []


def join_texts(text: str, parts: Sequence[str], said: Sequence[SpokenText]) -> SpokenText:
    """Return a text as it is spoken, from its parts as they are: the text itself, without pauses, if all are alike."""
    notes = dict.fromkeys(note for one in said for note in one.notes)
    alike = all(one.text.split() == part.split() for one, part in zip(said, parts, strict=True))
    spoken = without_pauses(text) if alike else " ".join(one.text for one in said)
    return SpokenText(spoken, tuple(notes))


def cut_pieces(
    index: int, line: Line, parts: Sequence[str], normalizer: Normalizer, first: int = 0
) -> list[Piece]:
    """Return a line's pieces: piece k has the line's seed plus k; parts without letters and digits are left out.

    ``first``: how many pieces the line has already.
    """
    texts = [normalizer.close(part) for part in parts if any(char.isalnum() for char in part)]
    return [
        Piece(index, part, line.seed + number, first + len(texts)) for number, part in enumerate(texts, first)
    ]


def build_piece(builder: PromptBuilder, line: Line, text: str) -> Prompt:
    """Return the prompt of a piece of a line; where the checkpoint needs it, the piece may not end too early."""
    prompt = builder.build(text, line.voice, line.language, line.instruct)
    if not builder.model.profile.hold_end:
        return prompt
    return replace(prompt, min_frames=held_frames(text, line.voice.kind == "icl"))


def guard_line(prompt: Prompt, options: GenerateOptions, sampling: Sampling) -> Guard:
    """Return the guard of a piece: the sampling's cap alone, or also the text's and the loop detector."""
    if not options.guard:
        return Guard(sampling.max_frames, detect_loops=False)
    return Guard(min(sampling.max_frames, longest_frames(prompt.text_tokens)))


def _by_length(prompt: Prompt) -> int:
    """The order of decoding: the longest first."""
    return -prompt.text_tokens


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

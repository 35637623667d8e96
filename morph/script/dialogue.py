"""Speak scripts: every line, the joined track and its captions, and playing it while it is made."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ...postprocess.checks import Span, from_db
from ...postprocess.ends import quiet_spans, speech_span
from ...postprocess.join import Spacing, join, silences
from ...postprocess.loudness import amplify
from ...postprocess.stretch import Stretch, check_installed, stretch
from ..batch.speech import Checks
from ..kept.render import Listener
from ..options import GenerateOptions
from ..speech.lines import ERROR, Line, Spoken, hash_seed, take_seed
from ..text.pronunciation import PronunciationList, shown_text
from ..text.scripts.cues import Cue, Segment, join_sentences, split_at_pauses, write_cues
from ..text.scripts.script import Script, ScriptError, ScriptLine, parse_script, report_faults, with_mood
from ..text.split import split_sentences
from ..voice.voice import Voice
from ..words.timing import WordTime, retime_words

SHOWN_INSTRUCTION = 40  # characters, in errors


@dataclass(frozen=True)
class Dialogue:
    """A spoken script."""

    lines: list[Spoken]
    joined: np.ndarray  # the track, float32 ``[T]``
    sample_rate: int
    srt: str  # of the track
    starts: tuple[int, ...]  # the first sample of each line in the track


@dataclass(frozen=True)
class ScriptRequest:
    """A script or captions to speak."""

    text: str  # see ``script.py`` and ``captions.py``
    cast: Mapping[str, Voice]  # by character; every voice must be one of the checkpoint's own
    language: str = "auto"  # for lines that name none
    # A line without a seed gets a hash of this, its name and its text: editing one line leaves other takes unchanged.
    seed: int = 0
    pronunciation: tuple[PronunciationList, ...] = ()  # see ``Line``
    what: str = "script"  # see ``report_faults``


def read_script(speaks: Checks, script: ScriptRequest, options: GenerateOptions) -> tuple[Script, list[Line]]:
    """Return a script as it was read, and its lines to be spoken.

    Raises ScriptError if it cannot be read, and errors as ``make_lines``.
    """
    parsed = parse_script(script.text, list(script.cast), speaks.languages)
    return parsed, make_lines(speaks, parsed.lines, script, options)


def make_lines(
    speaks: Checks, script: Sequence[ScriptLine], request: ScriptRequest, options: GenerateOptions
) -> list[Line]:
    """Return the lines to be spoken.

    Raises ScriptError for instructions that the lines' voices cannot follow; ValueError if the library of speed and
    pitch is needed and not installed.
    """
    if not all(retiming_of(line).changes_nothing for line in script):
        check_installed()
    lines = [
        Line(
            line.text,
            request.cast[line.name],
            line.language or request.language,
            seed,
            line.instruct,
            line.name,
            pronunciation=request.pronunciation,
        )
        for line, seed in zip(script, line_seeds(script, request.seed), strict=True)
    ]
    faults = []
    for source, line in zip(script, lines, strict=True):
        why = line.instruct and _why_refused(speaks, line, options)
        if why and not _why_refused(speaks, replace(line, instruct=None), options):
            shown = (line.instruct or "")[:SHOWN_INSTRUCTION]
            fix = f"or name a voice {with_mood(line.name, shown)!r}, which speaks such a line without one"
            faults.append((source.number, f"{shown!r} is an instruction: {why}; {fix}"))
    if faults:
        raise ScriptError(report_faults(faults, request.what))
    return lines


def _why_refused(speaks: Checks, line: Line, options: GenerateOptions) -> str:
    try:
        speaks.check(line, options)
    except ValueError as error:
        return str(error)
    return ""


def line_seeds(lines: Sequence[ScriptLine], seed: int) -> list[int]:
    """Return each line's seed: its own, or a hash of ``seed``, its name, its text and how often both came before.

    A later take gets a hash of that and its number.
    """
    before: Counter[tuple[str, str]] = Counter()
    seeds = []
    for line in lines:
        key = f"{seed}\0{line.name}\0{line.text}\0{before[line.name, line.text]}"
        before[line.name, line.text] += 1
        first = hash_seed(key) if line.seed is None else line.seed
        seeds.append(take_seed(first, line.take or 1))
    return seeds


def spacing_of(script: Script, gap_s: float) -> Spacing:
    """Return the track's silences: the script's pauses, and ``gap_s`` between any two lines."""
    lead, *between, tail = script.pauses
    return Spacing([gap_s + pause for pause in between], lead_s=lead, tail_s=tail)


def assemble(script: Script, spoken: Sequence[Spoken], gap_s: float, sentences: bool = False) -> Dialogue:
    """Join a script's lines, with captions at the times of their speech; failed lines get none.

    ``gap_s``: seconds of silence between lines, beside the script's pauses. ``sentences``: one caption per sentence.
    """
    rate = spoken[0].sample_rate
    spoken = [finish_line(one, line) for one, line in zip(spoken, script.lines, strict=True)]
    joined, spans = join([one.waveform for one in spoken], rate, spacing_of(script, gap_s))
    starts = tuple(start for start, _ in spans)
    return Dialogue(spoken, joined, rate, write_cues(cues_of(spoken, starts, sentences), "srt"), starts)


def finish_line(spoken: Spoken, line: ScriptLine) -> Spoken:
    """Return a line at the script's speed, pitch and level; its report says so if the level clips."""
    spoken = retime(spoken, retiming_of(line))
    loud = amplify(spoken.waveform, line.gain_db)
    if line.gain_db is not None and np.abs(spoken.waveform).max(initial=0) * from_db(line.gain_db) > 1:
        spoken = spoken.with_notes(
            f"Line {line.number} of the script is too loud with [gain {line.gain_db:g}] and is clipped: lower it."
        )
    return replace(spoken, waveform=loud)


def retiming_of(line: ScriptLine) -> Stretch:
    return Stretch(line.speed or 1.0, line.pitch or 0.0)


def retime(spoken: Spoken, by: Stretch) -> Spoken:
    """Return a line at another speed and pitch; the same line if nothing changes.

    The times of its pieces are exact to within a hop (15 ms); its frames stay those that were decoded.
    """
    if by.changes_nothing or not len(spoken.waveform):
        return spoken
    waveform = stretch(spoken.waveform, spoken.sample_rate, by)
    spans = []
    for span in spoken.spans:
        start, end = (min(len(waveform), round(place / by.speed)) for place in (span.start, span.end))
        trimmed, speed = round(span.trimmed / by.speed), span.speed * by.speed
        spans.append(replace(span, start=start, end=end, trimmed=trimmed, speed=speed))
    report = replace(spoken.report, seconds=len(waveform) / spoken.sample_rate)
    return replace(spoken, waveform=waveform, spans=tuple(spans), report=report, speed=spoken.speed * by.speed)


def _cue(start: int, spoken: Spoken, text: str, part: Span) -> Cue:
    begin, end = part
    rate = spoken.sample_rate
    edges = speech_span(spoken.waveform[begin:end], rate)
    # To the nearest millisecond, halves up, in integers: floats would round some halves down.
    first, last = ((2000 * (start + begin + edge) + rate) // (2 * rate) for edge in edges)
    return Cue(first, last, text, spoken.report.name)


def cues_of(lines: Sequence[Spoken], starts: Sequence[int], sentences: bool = False) -> list[Cue]:
    """Return the captions of a track, ordered by time; see ``captions_of``. Failed lines have none."""
    cues = [
        cue
        for start, one in zip(starts, lines, strict=True)
        if one.report.ended != ERROR
        for cue in captions_of(start, one, sentences)
    ]
    return sorted(cues, key=lambda cue: cue.start_ms)


def captions_of(start: int, spoken: Spoken, sentences: bool = False) -> list[Cue]:
    """Return the caption of a line whose first sample is ``start``, or one per sentence if its pieces are known."""
    if not (sentences and spoken.spans):
        return [_cue(start, spoken, shown_text(spoken.report.text), (0, len(spoken.waveform)))]
    parts = list[Segment]()
    for span in spoken.spans:
        pauses = quiet_spans(spoken.waveform[span.start : span.end], spoken.sample_rate)
        parts += split_at_pauses(span.text, span.start, span.end, pauses)
    return [_cue(start, spoken, text, span) for text, span in join_sentences(parts, *_sentences(spoken))]


def _sentences(spoken: Spoken) -> tuple[list[str], list[str]]:
    """Return the sentences as spoken, and as shown: as written, if the counts agree."""
    written = split_sentences(shown_text(spoken.report.text))
    said = split_sentences(spoken.report.spoken) if spoken.report.spoken else written
    return said, written if len(written) == len(said) else said


PAUSE_PORTION_S = 1.0  # of a pause per chunk: the reader of a stream wants small ones


class Player(Protocol):
    """Plays audio, such as ComfyUI's page."""

    @property
    def has_listener(self) -> bool: ...
    @property
    def sample_rate(self) -> int: ...
    def begin(self, name: str, text: str) -> None:
        """Announce the next line: its character or setting, and its words."""

    def play(self, samples: np.ndarray) -> None: ...
    def show_words(self, line: int, words: Sequence[WordTime]) -> None:
        """Show the word times of call ``line`` of ``begin``, which may not have come yet, or be over already."""


class ScenePlayer:
    """Plays a script while it is made: each line after its pause, at its speed, pitch and level, in order.

    ``gap_s``: seconds of silence between lines, beside the script's own. ``words``: the word times of a spoken line.
    Raises ValueError for more silence than a track may have.
    """

    def __init__(self, script: Script, gap_s: float, player: Player, words: Callable[[Spoken], Sequence[WordTime]]):
        self._lines, self._rate, self._player, self._words = script.lines, player.sample_rate, player, words
        lead, gaps, tail = silences(spacing_of(script, gap_s), len(self._lines) - 1, self._rate)
        self._silences = [lead, *gaps, tail]
        self._played: dict[int, list[np.ndarray]] = {}

    def listen(self, listener: Listener) -> Listener:
        """Return the listener for ``speak_lines``; ``listener`` still gets the progress."""
        if not self._player.has_listener:
            return listener
        # Speed and pitch need later samples.
        retimed = {index for index, line in enumerate(self._lines) if not retiming_of(line).changes_nothing}
        return Listener(listener.on_frame, listener.on_phase, self._play, self._show_words, retimed)

    def _play(self, index: int, samples: np.ndarray) -> None:
        line, by = self._lines[index], retiming_of(self._lines[index])
        if index not in self._played:
            self._pause(index)
            self._player.begin(line.name, line.text)
        if len(samples) and not by.changes_nothing:
            samples = stretch(samples, self._rate, by)
        # Adding zero turns -0.0 into 0.0, as in the track.
        played = amplify(samples, line.gain_db) + np.float32(0)
        self._played.setdefault(index, []).append(played)
        self._player.play(played)

    def _show_words(self, index: int, spoken: Spoken) -> None:
        if spoken.report.takes == 1:  # another take was not what played
            speed = retiming_of(self._lines[index]).speed
            self._player.show_words(index, retime_words(self._words(spoken), speed))

    def _pause(self, index: int) -> None:
        left, portion = self._silences[index], round(PAUSE_PORTION_S * self._rate)
        while left:
            self._player.play(np.zeros(min(left, portion), dtype=np.float32))
            left -= min(left, portion)

    def finish(self, spoken: Sequence[Spoken]) -> None:
        """Play the silence at the end, and each line again whose final take differs from what was played."""
        if not self._player.has_listener:
            return
        self._pause(len(self._lines))
        for index, one in enumerate(spoken):
            if not np.array_equal(np.concatenate(self._played[index]), one.waveform):
                self._player.begin(f"{one.report.name} again".strip(), one.report.text)
                self._player.play(one.waveform)

"""Speak scripts: every line, the joined track, and its subtitles."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...postprocess.join import Spacing, join
from ...postprocess.stretch import Stretch, check_installed, stretch
from ..batch.speaks import Checks
from ..options import GenerateOptions
from ..speech.lines import Line, PieceSpan, Spoken
from ..speech.takes import hash_seed, take_seed
from ..text.pronunciation import PronunciationList
from ..text.scripts.cues import write_cues
from ..text.scripts.script import Script, ScriptError, ScriptLine, parse_script, report_faults, with_mood
from ..voice.voice import Voice
from .sentences import cues_of

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


def read_script(speaks: Checks, script: ScriptRequest, options: GenerateOptions) -> tuple[Script, list[Line]]:
    """Return a script as it was read, and its lines to be spoken.

    Raises ScriptError if it cannot be read, and errors as ``make_lines``.
    """
    parsed = parse_script(script.text, list(script.cast), speaks.languages)
    return parsed, make_lines(speaks, parsed.lines, script, options)


def make_lines(
    speaks: Checks,
    script: Sequence[ScriptLine],
    request: ScriptRequest,
    options: GenerateOptions,
    what: str = "script",
) -> list[Line]:
    """Return the lines to be spoken; ``what``: as ``report_faults``.

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
        raise ScriptError(report_faults(faults, what))
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
    if line.gain_db is not None and np.abs(spoken.waveform).max(initial=0) * 10 ** (line.gain_db / 20) > 1:
        spoken = spoken.with_notes(
            f"Line {line.number} of the script is too loud with [gain {line.gain_db:g}] and is clipped: lower it."
        )
    return replace(spoken, waveform=loud)


def amplify(samples: np.ndarray, gain_db: float | None) -> np.ndarray:
    """Return float32 samples at another level, clipped to -1..1."""
    if gain_db is None:
        return samples
    return np.clip(samples * np.float32(10 ** (gain_db / 20)), np.float32(-1), np.float32(1))


def retiming_of(line: ScriptLine) -> Stretch:
    return Stretch(line.speed or 1.0, line.pitch or 0.0)


def retime(spoken: Spoken, by: Stretch) -> Spoken:
    """Return a line at another speed and pitch; the same line if nothing changes.

    The times of its pieces are exact to within a hop (15 ms); its frames stay those that were decoded.
    """
    if by.changes_nothing or not len(spoken.waveform):
        return spoken
    waveform = stretch(spoken.waveform, spoken.sample_rate, by)
    spans = tuple(_move(span, by.speed, len(waveform)) for span in spoken.spans)
    report = replace(spoken.report, seconds=len(waveform) / spoken.sample_rate)
    return replace(spoken, waveform=waveform, spans=spans, report=report, speed=spoken.speed * by.speed)


def _move(span: PieceSpan, speed: float, length: int) -> PieceSpan:
    """Return a piece at its place in a waveform of ``length`` samples; ``speed`` made it that long."""
    start, end = (min(length, round(place / speed)) for place in (span.start, span.end))
    return replace(span, start=start, end=end, trimmed=round(span.trimmed / speed), speed=span.speed * speed)

"""Scripts to speech: every line separately, all of them joined, and subtitles for the joined track."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...postprocess.join import Spacing, join
from ..kept.line_renderer import LineRenderer
from ..model.model import Model
from ..options import GenerateOptions
from ..speech.lines import Line, Spoken, render_lines
from ..speech.progress import OnFrame
from ..speech.seeds import hash_seed, take_seed
from ..speech.takes import ERROR
from ..synthesizer import Synthesizer
from ..text.scripts.script import Script, ScriptError, ScriptLine, parse_script, report_faults
from ..text.scripts.subtitles import Caption, to_srt
from ..voice.voice import Voice, check_voice
from .retime import check_retiming, retime, retiming_of
from .sentences import caption_of, sentence_captions

SHOWN_INSTRUCTION = 40  # characters, in errors


@dataclass(frozen=True)
class Dialogue:
    """A rendered script: its lines, the joined track (float32 ``[T]``), and its SRT."""

    lines: list[Spoken]
    joined: np.ndarray
    sample_rate: int
    srt: str


@dataclass(frozen=True)
class ScriptRequest:
    """A script to speak.

    Args:
        text: see ``script.py``.
        cast: which character speaks with which voice; every voice must be one of the checkpoint's own.
        language: for lines that name none.
        seed: a line without a seed gets its own from this, its name and its text, so that editing one line leaves
            the takes of the others unchanged.
        gap_s: seconds of silence between lines; pauses of the script are added to it.
        sentences: whether subtitles have a caption for each sentence, rather than for each line.
    """

    text: str
    cast: Mapping[str, Voice]
    language: str = "auto"
    seed: int = 0
    gap_s: float = 0.3
    sentences: bool = False


def render_script(
    synthesizer: Synthesizer,
    script: ScriptRequest,
    options: GenerateOptions | None = None,
    on_frame: OnFrame | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> Dialogue:
    """Speak a script; see ``render_lines`` for the other arguments.

    Raises:
        ScriptError: for a script that cannot be read.
        ValueError: as ``render_lines``.
    """
    parsed, lines = read_script(synthesizer, script)
    return assemble(parsed, render_lines(synthesizer, lines, options, on_frame, on_phase), script)


def render_scene(
    renderer: LineRenderer,
    script: ScriptRequest,
    on_frame: OnFrame | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> Dialogue:
    """Speak a script as ``render_script`` does, each line once; see ``LineRenderer.render``.

    Raises:
        ScriptError: for a script that cannot be read.
    """
    parsed, lines = read_script(renderer.synthesizer, script)
    return assemble(parsed, renderer.render(lines, on_frame, on_phase), script)


def read_script(synthesizer: Synthesizer, script: ScriptRequest) -> tuple[Script, list[Line]]:
    """Return a script as it was read, and its lines to be spoken.

    Raises:
        ScriptError: for a script that cannot be read, or an instruction that the checkpoint does not follow.
        ValueError: for a line with speed or pitch where their library is not installed.
    """
    parsed = parse_script(script.text, list(script.cast), synthesizer.model.languages)
    check_retiming(parsed.lines)
    check_instructions(synthesizer.model, parsed.lines, script.cast)
    return parsed, lines_of(parsed, script)


def check_instructions(model: Model, lines: Sequence[ScriptLine], cast: Mapping[str, Voice]) -> None:
    """Raise ScriptError, naming the lines, for instructions that the checkpoint does not follow with their voices."""
    errors = []
    for line in lines:
        if line.instruct:
            try:
                check_voice(model, cast[line.name], line.instruct)
            except ValueError as error:
                errors.append(
                    f"line {line.number}: {line.instruct[:SHOWN_INSTRUCTION]!r} is an instruction: {error}"
                )
    if errors:
        raise ScriptError(report_faults(errors))


def lines_of(parsed: Script, script: ScriptRequest) -> list[Line]:
    """Return the lines to be spoken of a script that was read; the text of ``script`` is not read again."""
    seeds = line_seeds(parsed.lines, script.seed)
    return [
        Line(
            line.text,
            script.cast[line.name],
            line.language or script.language,
            seed,
            line.instruct,
            line.name,
        )
        for line, seed in zip(parsed.lines, seeds, strict=True)
    ]


def line_seeds(lines: Sequence[ScriptLine], seed: int) -> list[int]:
    """Return each line's seed: its own, or a hash of ``seed``, its name, its text and how often both came before.

    A take above the first gets a hash of that and its number.
    """
    before: Counter[tuple[str, str]] = Counter()
    seeds = []
    for line in lines:
        key = f"{seed}\0{line.name}\0{line.text}\0{before[line.name, line.text]}"
        before[line.name, line.text] += 1
        first = hash_seed(key) if line.seed is None else line.seed
        seeds.append(take_seed(first, line.take or 1))
    return seeds


def amplify(samples: np.ndarray, gain_db: float | None) -> np.ndarray:
    """Return float32 samples at another level, within -1..1; None leaves them alone."""
    if gain_db is None:
        return samples
    return np.clip(samples * np.float32(10 ** (gain_db / 20)), np.float32(-1), np.float32(1))


def amplify_line(spoken: Spoken, line: ScriptLine) -> Spoken:
    """Return a line at the level that the script asks for; its report says so if that clips."""
    if line.gain_db is None:
        return spoken
    waveform, report = amplify(spoken.waveform, line.gain_db), spoken.report
    if np.abs(spoken.waveform).max(initial=0) * 10 ** (line.gain_db / 20) > 1:
        note = f"Line {line.number} of the script is too loud with [gain {line.gain_db:g}] and is clipped: lower it."
        report = replace(report, notes=(*report.notes, note))
    return replace(spoken, waveform=waveform, report=report)


def finish_line(spoken: Spoken, line: ScriptLine) -> Spoken:
    """Return a line at the speed, the pitch and the level that the script asks for."""
    return amplify_line(retime(spoken, retiming_of(line)), line)


def spacing_of(script: Script, gap_s: float) -> Spacing:
    """Return the silences of a script's track: its pauses, and ``gap_s`` seconds between any two lines."""
    lead, *between, tail = script.pauses
    return Spacing([gap_s + pause for pause in between], lead_s=lead, tail_s=tail)


def assemble(script: Script, spoken: Sequence[Spoken], request: ScriptRequest) -> Dialogue:
    """Join the lines of a script, with captions at the times of their speech; none where a line could not be made."""
    rate = spoken[0].sample_rate
    spoken = [finish_line(one, line) for one, line in zip(spoken, script.lines, strict=True)]
    joined, spans = join([one.waveform for one in spoken], rate, spacing_of(script, request.gap_s))
    captions = [
        caption
        for (start, _), one in zip(spans, spoken, strict=True)
        if one.report.ended != ERROR
        for caption in captions_of(start, one, request.sentences)
    ]
    return Dialogue(spoken, joined, rate, to_srt(captions))


def captions_of(start: int, spoken: Spoken, sentences: bool) -> list[Caption]:
    """Return the captions of a line whose first sample is ``start``: one, or one for each sentence."""
    return sentence_captions(start, spoken) if sentences else [caption_of(start, spoken)]

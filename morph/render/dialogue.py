"""Scripts to speech: every line by itself, all of them joined, and the subtitles of the joined track."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from ...postprocess.join import Spacing, join
from ...postprocess.silence import Trim, sound_span
from ..options import GenerateOptions
from ..synthesizer import Synthesizer
from ..text.script import Script, ScriptLine, parse_script
from ..text.subtitles import Caption, to_srt
from ..voice.voice import Voice
from .lines import Line, OnFrame, Spoken, render_lines

CAPTION_MARGINS = Trim(threshold_db=-40.0, margin_ms=40.0)


@dataclass(frozen=True)
class Dialogue:
    """A rendered script: its lines, the joined track (float32 ``[T]``), and its SRT."""

    lines: list[Spoken]
    joined: np.ndarray
    sample_rate: int
    srt: str


def render_script(
    synthesizer: Synthesizer,
    script: str,
    cast: Mapping[str, Voice],
    language: str = "auto",
    seed: int = 0,
    options: GenerateOptions | None = None,
    gap_s: float = 0.3,
    on_frame: OnFrame | None = None,
    on_phase: Callable[[str], None] | None = None,
) -> Dialogue:
    """Speak a script.

    Args:
        synthesizer: the checkpoint and its engine; every voice of the cast must be one of its own.
        script: see ``script.py``.
        cast: which character speaks with which voice.
        language: for lines that name none.
        seed: every line that names no seed gets one of its own from this, its name and its text, so that editing
            one line leaves the others' takes as they were.
        options: as for any lines.
        gap_s: silence between lines; pauses of the script are added to it.
        on_frame, on_phase: see ``render_lines``.
    """
    parsed = parse_script(script, list(cast), synthesizer.model.languages)
    seeds = line_seeds(parsed.lines, seed)
    lines = [
        Line(line.text, cast[line.name], line.language or language, line_seed, line.instruct, line.name)
        for line, line_seed in zip(parsed.lines, seeds, strict=True)
    ]
    spoken = render_lines(synthesizer, lines, options, on_frame, on_phase)
    return _join(parsed, spoken, gap_s)


def line_seeds(lines: Sequence[ScriptLine], seed: int) -> list[int]:
    """Each line's seed: its own, or one made of ``seed``, its name, its text, and how often both came before."""
    before: Counter[tuple[str, str]] = Counter()
    seeds = []
    for line in lines:
        key = f"{seed}\0{line.name}\0{line.text}\0{before[line.name, line.text]}"
        before[line.name, line.text] += 1
        made = int.from_bytes(blake2b(key.encode(), digest_size=7).digest(), "big")
        seeds.append(made if line.seed is None else line.seed)
    return seeds


def _caption(start: int, spoken: Spoken) -> Caption:
    """A line's caption where its voice is heard: lines begin and end with silence of their own."""
    first, last = sound_span(spoken.waveform, spoken.sample_rate, CAPTION_MARGINS)
    report = spoken.report
    return Caption.from_samples(start + first, start + last, spoken.sample_rate, report.text, report.name)


def _join(script: Script, spoken: Sequence[Spoken], gap_s: float) -> Dialogue:
    rate = spoken[0].sample_rate
    lead, *between, tail = script.pauses
    gaps = [gap_s + pause for pause in between]
    joined, spans = join([one.waveform for one in spoken], rate, Spacing(gaps, lead_s=lead, tail_s=tail))
    captions = [_caption(start, one) for (start, _), one in zip(spans, spoken, strict=True)]
    return Dialogue(list(spoken), joined, rate, to_srt(captions))

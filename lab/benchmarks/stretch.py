"""Speed and pitch: what each library does to lines of the demo voice.

    python -m lab.benchmarks.stretch            # 12 lines, 4 speakers, on a CPU; about ten minutes
    python -m lab.benchmarks.stretch --keep     # also writes lab/benchmarks/results/stretch.json

Judged as in ``lab.judges``: similarity to the unchanged line (Resemblyzer) and DistillMOS. Both judges are programs; a
line's similarity to itself is 1, and that of two speakers about 0.57. Needs lab/judges/requirements.txt, and av for
FFmpeg's atempo.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import librosa
import numpy as np
import torch
from qwen3_tts_morph.morph.batch.stream import render_lines
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.postprocess.stretch import Stretch, stretch

from ..judges.clips import JUDGE_RATE
from ..judges.mos import OpinionJudge
from ..judges.speaker import SpeakerEncoder, cosine
from ..judges.stats import mean
from .results import FOLDER, installed_versions, machine_name

TEXTS = Path(__file__).parent / "quality" / "lines.txt"
RESULTS = FOLDER / "stretch.json"
SPEAKERS = ("heart", "emma", "michael", "george")
SETTINGS = (
    *(Stretch(speed=speed) for speed in (0.8, 1.25, 1.5)),
    *(Stretch(semitones=semitones) for semitones in (-3.0, 3.0)),
)
Change = Callable[[np.ndarray, int, Stretch], np.ndarray]


def signalsmith_preset(wave: np.ndarray, rate: int, by: Stretch) -> np.ndarray:
    """Signalsmith Stretch with the library's preset: blocks of 120 ms."""
    from python_stretch import Signalsmith

    processor = Signalsmith.Stretch(0)
    processor.preset(1, rate)
    processor.setTimeFactor(by.speed)
    processor.setTransposeSemitones(by.semitones)
    return np.asarray(processor.process(wave[None]))[0]


def atempo(wave: np.ndarray, rate: int, by: Stretch) -> np.ndarray:
    """FFmpeg's atempo (WSOLA) through PyAV; for pitch also a change of the sample rate."""
    ratio_of_pitch = 2 ** (by.semitones / 12)
    made = _filtered(wave, rate, by.speed / ratio_of_pitch)
    if by.semitones:
        made = librosa.resample(made, orig_sr=rate * ratio_of_pitch, target_sr=rate, res_type="soxr_hq")
    return made


def _filtered(wave: np.ndarray, rate: int, tempo: float) -> np.ndarray:
    import av
    from av.filter import Graph

    graph = Graph()
    source = graph.add_abuffer(format="fltp", sample_rate=rate, layout="mono", time_base=Fraction(1, rate))
    changed, sink = graph.add("atempo", f"{tempo:.9f}"), graph.add("abuffersink")
    source.link_to(changed)
    changed.link_to(sink)
    graph.configure()
    frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(wave[None]), format="fltp", layout="mono")
    frame.sample_rate, frame.pts = rate, 0
    source.push(frame)
    source.push(None)
    made: list[np.ndarray] = []
    while True:
        try:
            pulled = sink.pull()
        except (av.error.BlockingIOError, av.error.EOFError):
            return np.concatenate(made)
        assert isinstance(pulled, av.AudioFrame)  # the graph has audio only
        made.append(pulled.to_ndarray()[0])


def phase_vocoder(wave: np.ndarray, rate: int, by: Stretch) -> np.ndarray:
    """librosa's phase vocoder."""
    made = librosa.effects.time_stretch(wave, rate=by.speed) if by.speed != 1 else wave
    return librosa.effects.pitch_shift(made, sr=rate, n_steps=by.semitones) if by.semitones else made


LIBRARIES: dict[str, tuple[str, Change]] = {  # name -> package, function
    "Signalsmith Stretch, blocks of 60 ms": ("python-stretch", stretch),
    "Signalsmith Stretch, preset (120 ms)": ("python-stretch", signalsmith_preset),
    "FFmpeg atempo": ("av", atempo),
    "librosa phase vocoder": ("librosa", phase_vocoder),
}


@dataclass(frozen=True)
class Judged:
    """What the judges say of one recording."""

    embedding: np.ndarray
    mos: float


class Judges:
    """All judges, loaded."""

    def __init__(self) -> None:
        self._opinions, self._encoder = OpinionJudge(), SpeakerEncoder()

    def judge(self, wave: np.ndarray, rate: int) -> Judged:
        """Judge one recording."""
        audio = librosa.resample(wave, orig_sr=rate, target_sr=JUDGE_RATE)
        return Judged(self._encoder.embed(audio), self._opinions.distillmos(audio))


@dataclass(frozen=True)
class Row:
    """One library at one setting; the first row of a table is the unchanged lines.

    ``similarity`` is to the unchanged line; figures are means over the lines, with 95 % intervals (low, high).
    ``length_error_ms`` is the largest difference from the length asked for, ``cost`` seconds per second of audio.
    """

    library: str
    speed: float
    semitones: float
    lines: int
    similarity: tuple[float, float, float]
    distillmos: tuple[float, float, float]
    length_error_ms: float = 0.0
    cost: float = 0.0


def speak(count: int) -> list[Spoken]:
    """Speak held-out sentences with the demo voice, its speakers in rotation."""
    synthesizer = Synthesizer.load(demo_voice(), LoadOptions(), torch.device("cpu"))
    texts = TEXTS.read_text(encoding="utf-8").splitlines()[:count]
    voices = [preset_voice(synthesizer.model, name) for name in SPEAKERS]
    lines = [Line(text, voices[place % len(voices)], seed=1) for place, text in enumerate(texts)]
    return render_lines(synthesizer, lines, GenerateOptions())


@dataclass(frozen=True)
class Lines:
    """The unchanged lines, what the judges say of them, and the judges."""

    spoken: Sequence[Spoken]
    before: Sequence[Judged]
    judges: Any


def measure(library: str, change: Change, by: Stretch, lines: Lines) -> Row:
    """Return what one library at one setting does to the lines."""
    spoken, judges = lines.spoken, lines.judges
    started = time.perf_counter()
    waves = [change(one.waveform, one.sample_rate, by) for one in spoken]
    cost = (time.perf_counter() - started) / sum(one.report.seconds for one in spoken)
    errors = [
        abs(len(wave) - len(one.waveform) / by.speed) / one.sample_rate * 1000
        for wave, one in zip(waves, spoken, strict=True)
    ]
    judged = [judges.judge(wave, one.sample_rate) for wave, one in zip(waves, spoken, strict=True)]
    row = summarise(library, by, judged, lines.before)
    return replace(row, length_error_ms=round(max(errors), 2), cost=round(cost, 5))


def summarise(library: str, by: Stretch, judged: Sequence[Judged], before: Sequence[Judged]) -> Row:
    """Return the means over the lines."""
    similar = mean([cosine(one.embedding, old.embedding) for one, old in zip(judged, before, strict=True)])
    opinion = mean([one.mos for one in judged])
    figures = ((one.value, one.low, one.high) for one in (similar, opinion))
    rounded = [tuple(round(value, 4) for value in figure) for figure in figures]
    return Row(library, by.speed, by.semitones, len(judged), *rounded)  # type: ignore[arg-type]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| library | speed | pitch | similarity | DistillMOS | length off by, ms | ms per s |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        opinion = "{:.2f} ({:.2f}-{:.2f})".format(*row.distillmos)
        lines.append(
            f"| {row.library} | {row.speed:g} | {row.semitones:+g} | {row.similarity[0]:.3f} | {opinion} | "
            f"{row.length_error_ms:.1f} | {row.cost * 1000:.1f} |"
        )
    return "\n".join(lines)


def save(rows: Sequence[Row], path: Path = RESULTS) -> None:
    """Write the rows, with machine, date and versions."""
    packages = {package for package, _ in LIBRARIES.values()}
    document = {
        "command": "python -m lab.benchmarks.stretch --keep",
        "machine": machine_name(torch.device("cpu")),
        "date": datetime.date.today().isoformat(),
        "versions": installed_versions() | {name: version(name) for name in sorted(packages)},
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Speak, change, judge, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", type=int, default=12, help="number of lines, default: 12")
    parser.add_argument("--keep", action="store_true", help="write the rows to the results file")
    asked = parser.parse_args()
    spoken, judges = speak(asked.lines), Judges()
    before = [judges.judge(one.waveform, one.sample_rate) for one in spoken]
    lines = Lines(spoken, before, judges)
    rows = [summarise("unchanged", Stretch(), before, before)]
    for by in SETTINGS:
        for library, (_, change) in LIBRARIES.items():
            rows.append(measure(library, change, by, lines))
            print(table(rows).splitlines()[-1], flush=True)
    if asked.keep:
        save(rows)
    print(table(rows))


if __name__ == "__main__":
    main()

"""Word errors of the demo voice with default settings: paragraphs, written numbers, short clones.

    python -m lab.benchmarks.everyday paragraphs            # six paragraphs of 50-150 words, five seeds each
    python -m lab.benchmarks.everyday written --seq-groups 15
    python -m lab.benchmarks.everyday clones                # short lines in ICL clones

Words are judged by whisper-base (``lab.judges.asr``, installed with tests/requirements.txt). With ``--keep`` the row
of every line, with its transcript, goes to ``lab/benchmarks/results/everyday.json``. A number can be transcribed in
several ways (7:45, 7.45): ``written.tsv`` lists the correct ones, and the closest counts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import librosa
import soundfile
import torch
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.render.lines import Line, render_lines
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, preset_voice
from qwen3_tts_morph.morph.voice.voice import Voice

from ...judges.asr import Recogniser
from ...judges.clips import JUDGE_RATE
from ..results import FOLDER, installed_versions, machine_name

HERE = Path(__file__).resolve().parent
RECORDINGS = HERE.parents[2] / "tests" / "data"
RESULTS = FOLDER / "everyday.json"
SPEAKERS = ("heart", "emma", "michael", "george")
TRANSCRIPTS = {
    "austen-0870": "And Mister John Dashwood had then leisure to consider how much there might be prudently in his "
    "power to do for them.",
    "austen-0880": "He was not an ill-disposed young man.",
}
SHORT = (
    "Yes.",
    "Good morning!",
    "I will see you tomorrow.",
    "Hello there, how are you today?",
    "Please close the door behind you.",
)


@dataclass(frozen=True)
class Said:
    """One line to speak, and the transcripts that count as correct."""

    part: str
    text: str
    readings: tuple[str, ...]
    voice: Voice
    seed: int


@dataclass(frozen=True)
class Row:
    """The result of one line."""

    part: str
    voice: str
    seed: int
    seq_groups: int
    engine: str
    text: str
    heard: str
    words: int
    wrong: int
    ended: str
    takes: int
    pieces: int
    seconds: float
    rtf: float


def paragraphs(model: Model, seeds: Sequence[int]) -> Iterator[Said]:
    """Pasted paragraphs, the four speakers in rotation."""
    texts = (HERE / "paragraphs.txt").read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(texts):
        voice = preset_voice(model, SPEAKERS[number % len(SPEAKERS)])
        yield from (Said("paragraphs", text, (text,), voice, seed) for seed in seeds)


def written(model: Model, seeds: Sequence[int]) -> Iterator[Said]:
    """Sentences with dates, times, prices, years, decimals and acronyms, and how they are read aloud."""
    lines = (HERE / "written.tsv").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        text, *readings = line.split("\t")
        voice = preset_voice(model, SPEAKERS[number % len(SPEAKERS)])
        yield Said("written", text, (*readings, text), voice, seeds[number % len(seeds)])


def clones(model: Model, seeds: Sequence[int]) -> Iterator[Said]:
    """Short lines in voices cloned with a transcript."""
    for name, transcript in TRANSCRIPTS.items():
        waveform, rate = soundfile.read(RECORDINGS / f"{name}.flac", dtype="float32")
        voice = clone_voice(model, waveform, rate, CloneOptions("icl", transcript, name=name))
        for text in SHORT:
            yield from (Said("clones", text, (text,), voice, seed) for seed in seeds)


PARTS = {"paragraphs": paragraphs, "written": written, "clones": clones}


def speak(synthesizer: Synthesizer, said: Said, options: GenerateOptions, recogniser: Recogniser) -> Row:
    """Speak one line and transcribe it."""
    started = time.perf_counter()
    [spoken] = render_lines(synthesizer, [Line(said.text, said.voice, "auto", said.seed)], options)
    elapsed = time.perf_counter() - started
    audio = librosa.resample(spoken.waveform, orig_sr=spoken.sample_rate, target_sr=JUDGE_RATE)
    heard = recogniser.nearest(audio, said.readings)
    report = spoken.report
    return Row(
        said.part,
        said.voice.name,
        said.seed,
        options.seq_groups,
        synthesizer.engine.choose(synthesizer.model, options).engine,
        said.text,
        heard.heard,
        heard.words,
        heard.word_errors,
        report.ended,
        report.takes,
        report.pieces,
        round(report.seconds, 2),
        round(elapsed / report.seconds, 3),
    )


def summarize(rows: Sequence[Row]) -> str:
    """Count words, errors, lines that did not end by themselves and lines spoken again, for each SEQ_GROUPS."""
    lines = []
    for part, groups in sorted({(row.part, row.seq_groups) for row in rows}):
        own = [row for row in rows if (row.part, row.seq_groups) == (part, groups)]
        words, wrong = sum(row.words for row in own), sum(row.wrong for row in own)
        failed = sum(row.ended != "eos" for row in own)
        again = sum(row.takes > 1 for row in own)
        lines.append(
            f"{part}, SEQ_GROUPS {groups}: {wrong} of {words} words wrong ({wrong / words:.1%}), {len(own)} lines, "
            f"{failed} did not end by themselves, {again} spoken again"
        )
    return "\n".join(lines)


def save(rows: Sequence[Row], path: Path = RESULTS) -> None:
    """Write the rows; they replace older rows of the same part and SEQ_GROUPS."""
    before = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    measured = {(row.part, row.seq_groups) for row in rows}
    device = torch.device("cpu")
    about = {
        "machine": machine_name(device),
        "date": datetime.date.today().isoformat(),
        **installed_versions(),
    }
    kept = [row for row in before if (row["part"], row["seq_groups"]) not in measured]
    document = {"rows": kept + [{**asdict(row), **about} for row in rows]}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Speak, transcribe, and print what was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--seq-groups", type=int, default=GenerateOptions.seq_groups)
    parser.add_argument("--engine", default=LoadOptions.engine)
    parser.add_argument("--keep", action="store_true", help="write the rows to the results file")
    asked = parser.parse_args()
    synthesizer = Synthesizer.load(demo_voice(), LoadOptions(engine=asked.engine))
    recogniser = Recogniser(Path(tempfile.gettempdir()) / "whisper-base")
    options, rows = GenerateOptions(seq_groups=asked.seq_groups), []
    for part in asked.parts:
        for said in PARTS[part](synthesizer.model, range(1, asked.seeds + 1)):
            rows.append(speak(synthesizer, said, options, recogniser))
            if rows[-1].wrong or rows[-1].ended != "eos":
                print(
                    f"{rows[-1].wrong} wrong, {rows[-1].ended}: {said.text!r} transcribed as {rows[-1].heard!r}",
                    flush=True,
                )
    if asked.keep:
        save(rows)
    print(summarize(rows))


if __name__ == "__main__":
    main()

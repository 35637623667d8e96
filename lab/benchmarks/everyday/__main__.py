"""Word errors of the demo voice with default settings: paragraphs, written numbers, short clones.

    python -m lab.benchmarks.everyday paragraphs            # six paragraphs of 50-150 words, five seeds each
    python -m lab.benchmarks.everyday written --seq-groups 15
    python -m lab.benchmarks.everyday clones                # short lines in ICL clones
    python -m lab.benchmarks.everyday clones --device cuda --speak FOLDER   # only speak, into a new folder
    python -m lab.benchmarks.everyday --judge FOLDER                        # judge it, on another machine

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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import librosa
import soundfile
import torch
from qwen3_tts_morph.morph.batch.stream import render_lines
from qwen3_tts_morph.morph.checkpoint.find import demo_voice
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, LoadOptions
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
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
    """One spoken line; ``heard``, ``words`` and ``wrong`` are known when it has been judged."""

    part: str
    voice: str
    seed: int
    seq_groups: int
    engine: str
    text: str
    ended: str
    takes: int
    pieces: int
    seconds: float
    rtf: float
    heard: str = ""
    words: int = 0
    wrong: int = 0


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


def speak(synthesizer: Synthesizer, said: Said, options: GenerateOptions) -> tuple[Row, Spoken]:
    """Speak one line."""
    started = time.perf_counter()
    [spoken] = render_lines(synthesizer, [Line(said.text, said.voice, "auto", said.seed)], options)
    elapsed = time.perf_counter() - started
    report = spoken.report
    engine = synthesizer.engine.choose(synthesizer.model).engine
    ended = (report.ended, report.takes, report.pieces)
    times = (round(report.seconds, 2), round(elapsed / report.seconds, 3))
    row = Row(said.part, said.voice.name, said.seed, options.seq_groups, engine, said.text, *ended, *times)
    return row, spoken


def speak_all(parts: Sequence[str], asked: argparse.Namespace, folder: Path) -> None:
    """Speak these parts' lines; write a recording per line, and ``spoken.json`` with rows and correct readings."""
    folder.mkdir(parents=True)
    synthesizer = Synthesizer.load(demo_voice(), LoadOptions(engine=asked.engine), torch.device(asked.device))
    options = GenerateOptions(seq_groups=asked.seq_groups)
    lines: list[dict[str, Any]] = []
    for part in parts:
        for said in PARTS[part](synthesizer.model, range(1, asked.seeds + 1)):
            row, spoken = speak(synthesizer, said, options)
            soundfile.write(folder / f"{len(lines)}.flac", spoken.waveform, spoken.sample_rate)
            lines.append({"row": asdict(row), "readings": said.readings})
    about = {
        "machine": machine_name(synthesizer.model.device),
        "date": datetime.date.today().isoformat(),
        **installed_versions(),
    }
    (folder / "spoken.json").write_text(json.dumps({"about": about, "lines": lines}), encoding="utf-8")


def judge_all(folder: Path) -> tuple[list[Row], dict[str, str]]:
    """Transcribe the lines that ``speak_all`` wrote; return their rows, and what they were spoken with."""
    document = json.loads((folder / "spoken.json").read_text(encoding="utf-8"))
    recogniser = Recogniser(Path(tempfile.gettempdir()) / "whisper-base")
    rows = []
    for number, line in enumerate(document["lines"]):
        audio, rate = soundfile.read(folder / f"{number}.flac", dtype="float32")
        heard = recogniser.nearest(
            librosa.resample(audio, orig_sr=rate, target_sr=JUDGE_RATE), line["readings"]
        )
        row = replace(Row(**line["row"]), heard=heard.heard, words=heard.words, wrong=heard.word_errors)
        if row.wrong or row.ended != "eos":
            print(f"{row.wrong} wrong, {row.ended}: {row.text!r} transcribed as {row.heard!r}", flush=True)
        rows.append(row)
    return rows, document["about"]


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


def save(rows: Sequence[Row], about: dict[str, str], path: Path = RESULTS) -> None:
    """Write the rows; they replace older rows of the same part and SEQ_GROUPS on the same kind of device."""
    before = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    new = [{**asdict(row), **about} for row in rows]
    measured = {_kind(row) for row in new}
    document = {"rows": [row for row in before if _kind(row) not in measured] + new}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _kind(row: dict[str, Any]) -> tuple[str, int, bool]:
    return row["part"], row["seq_groups"], row["machine"].startswith("NVIDIA")


def main() -> None:
    """Speak, transcribe, and print what was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--seq-groups", type=int, default=GenerateOptions.seq_groups)
    parser.add_argument("--engine", default=LoadOptions.engine)
    parser.add_argument("--device", default="cpu", help="what speaks")
    parser.add_argument("--keep", action="store_true", help="write the rows to the results file")
    parser.add_argument("--speak", type=Path, metavar="FOLDER", help="only speak, into this new folder")
    parser.add_argument("--judge", type=Path, metavar="FOLDER", help="only judge what --speak wrote")
    asked = parser.parse_args()
    if bool(asked.parts) == bool(asked.judge) or not set(asked.parts) <= set(PARTS):
        parser.error("name what to speak (paragraphs, written, clones), or a folder to judge")
    if asked.speak:
        speak_all(asked.parts, asked, asked.speak)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.judge or Path(temporary) / "spoken"
        if not asked.judge:
            speak_all(asked.parts, asked, folder)
        rows, about = judge_all(folder)
    if asked.keep:
        save(rows, about)
    print(summarize(rows))


if __name__ == "__main__":
    main()

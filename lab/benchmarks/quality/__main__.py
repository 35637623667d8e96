"""Measure the quality of a checkpoint's speech at each SEQ_GROUPS.

    python -m lab.benchmarks.quality --checkpoint FOLDER --out runs/mine
    python -m lab.benchmarks.quality --checkpoint FOLDER --out runs/mine --voices recordings --lines sentences.txt \\
        --strategies crossbar trained:5 --seq-groups 1 5 15

Speaks the same lines with the same voices and seeds at each SEQ_GROUPS, with stock heads ("crossbar") and with the
checkpoint's trained tail ("trained"). Automatic judges score them: words, speaker, opinion scores. Writes
``quality.md``, ``quality.html`` with players, and the rows as JSON into ``--out``. Exact speech (crossbar at 15) and
two controls are always included. Results that are already in the folder are not computed again: the same command
resumes an interrupted run. Steps can also run separately: ``--steps codes`` on a GPU, then ``--steps wavs judge
report`` on another machine with the same folder. Times are those of ``lab.benchmarks.frames``.

Voices: a folder of recordings (a sound file or a subfolder per voice; needs a Base checkpoint), or the checkpoint's
own. Judges are optional packages (lab/judges/requirements.txt).
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import ENGINES, PRECISIONS, LoadOptions
from qwen3_tts_morph.morph.synthesizer import Engine, Synthesizer

from ..results import FOLDER, machine_name
from .conditions import CONTROLS, EXACT, STRATEGIES, Condition, select
from .figures import read_rows
from .folder import REFERENCES, RunFolder, RunInfo, hash_weights, write_wav
from .judging import clips_of, judge_all, make_judges
from .lines import OWN_LINES, Cast, Task, assign_voices, cast_own, cast_recordings, read_texts
from .report import write_report
from .speak import Speaker, make_codes, make_wavs, spoil_codes

STEPS = ("codes", "wavs", "judge", "report")
NEED_MODEL = {"codes", "wavs"}


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    doc, _, rest = (__doc__ or "").partition("\n")
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=rest)
    add = made.add_argument
    add("--checkpoint", type=Path, help="a Qwen3-TTS folder; not needed for the steps judge and report")
    add("--out", type=Path, required=True, help="the run's folder; an interrupted run resumes")
    add("--name", help="name of the checkpoint in the results (default: its folder's name)")
    add("--lines", type=Path, help="a text file, one sentence per line (default: built-in sentences)")
    add("--voices", type=Path, help="a folder of recordings to clone (default: the checkpoint's voices)")
    add("--language", default="auto")
    add("--limit", type=int, default=0, help="number of lines (0: all)")
    add("--seed", type=int, default=0)
    add("--strategies", nargs="+", default=["crossbar"], metavar="NAME[:S]", help=", ".join(STRATEGIES))
    add("--seq-groups", nargs="+", default=["1-15"], help="e.g. 1-15 or 1 3 5 15")
    add("--steps", nargs="+", choices=STEPS, default=STEPS)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--precision", choices=PRECISIONS, default="auto")
    add("--engine", choices=ENGINES, default="auto")
    add("--batch-size", type=int, default=16)
    add(
        "--whisper",
        type=Path,
        default=Path("artifacts/whisper-base"),
        help="folder for whisper-base, assembled there on first use",
    )
    add("--publish", action="store_true", help="also copy the rows to lab/benchmarks/results")
    return made.parse_args(arguments)


def parse_range(text: str) -> list[int]:
    """Parse "1-3,15" or "1 3 15"; raises ValueError for anything else."""
    groups: set[int] = set()
    for part in text.replace(",", " ").split():
        low, dash, high = part.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise ValueError(f"--seq-groups {text!r} is not a list of numbers: write e.g. 1-15 or 1 3 5 15")
        groups |= set(range(int(low), int(high or low) + 1))
    return sorted(groups)


def choose_lines(model: Model, options: argparse.Namespace) -> tuple[Cast, list[Task]]:
    """Return the voices, and the lines with the voice that speaks each."""
    cast = cast_recordings(model, options.voices) if options.voices else cast_own(model)
    texts = read_texts(options.lines or OWN_LINES)[: options.limit or None]
    return cast, assign_voices(texts, list(cast.voices), options.seed)


def prepare(options: argparse.Namespace, folder: RunFolder) -> Speaker:
    """Load the checkpoint, choose lines and voices, and start or continue the run's folder."""
    if options.checkpoint is None:
        raise ValueError(f"the steps {', '.join(sorted(NEED_MODEL))} need --checkpoint")
    model = load_model(options.checkpoint, LoadOptions(options.precision), options.device)
    cast, tasks = choose_lines(model, options)
    about = RunInfo(
        checkpoint=options.name or model.name,
        weights=hash_weights(options.checkpoint),
        model=model.summary(),
        sampling=str(asdict(model.sampling)),
        language=options.language,
        voices=cast.about,
        sample_rate=model.sample_rate,
        tasks=tuple(tasks),
        machine=machine_name(model.device),
    )
    folder.start(about)
    for name, recordings in cast.references.items():
        for index, one in enumerate(recordings):
            path = folder.root / REFERENCES / name / f"{index}.wav"
            if not path.is_file():
                write_wav(path, one.audio, one.sample_rate)
    synthesizer = Synthesizer(model, Engine(options.engine))
    return Speaker.prepare(synthesizer, tasks, cast.voices, options.language)


def make(speaker: Speaker, folder: RunFolder, conditions: Sequence[Condition], options: argparse.Namespace) -> None:
    """Run the steps that need the model."""
    if "codes" in options.steps:
        for condition in conditions:
            if condition.strategy.spoil is None:
                make_codes(speaker, folder, condition, options.batch_size)
        exact = next(condition for condition in conditions if condition.is_exact)
        for condition in conditions:
            if condition.strategy.spoil is not None:
                spoil_codes(speaker, folder, condition, exact)
    if "wavs" in options.steps:
        for condition in conditions:
            make_wavs(speaker.model, folder, condition, len(speaker.tasks))


def run(options: argparse.Namespace) -> None:
    """Run the steps; raises ValueError for bad input."""
    names = [*options.strategies, EXACT, *CONTROLS]
    conditions = select(names, parse_range(" ".join(options.seq_groups)))
    folder = RunFolder(options.out)
    if NEED_MODEL & set(options.steps):
        make(prepare(options, folder), folder, conditions, options)
    about = folder.about()
    if "judge" in options.steps:
        texts = [task.text for task in about.tasks]
        judges = make_judges(options.whisper, about.language)
        clips = clips_of(folder, [condition.key for condition in conditions], texts)
        judge_all(clips, judges)
    if "report" in options.steps:
        exact = next(condition for condition in conditions if condition.is_exact)
        markdown, path = write_report(folder, about, read_rows(folder, conditions, exact, about.tasks))
        print(f"{markdown}\nwritten to {options.out}")
        if options.publish:
            shutil.copy(path, FOLDER / path.name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; bad input prints one sentence and returns exit code 2."""
    options = parse_arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("faster_whisper").setLevel(logging.WARNING)  # it logs every clip
    try:
        run(options)
    except ValueError as error:
        print(f"quality: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

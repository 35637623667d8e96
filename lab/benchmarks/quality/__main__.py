"""What each decoding strategy does to a voice, for any checkpoint.

    python -m lab.benchmarks.quality --checkpoint FOLDER --out runs/mine
    python -m lab.benchmarks.quality --checkpoint FOLDER --out runs/mine --voices recordings --lines sentences.txt \\
        --strategies crossbar chunked:5 --seq-groups 1 5 15

Speaks the same lines with the same voices and seeds at each SEQ_GROUPS and with each strategy. Automatic judges score
them (words, speaker, opinion scores); distances from the exact distributions and milliseconds per frame are measured.
Writes ``quality.md``, ``quality.html`` with players, ``quality.svg`` and the rows as JSON into ``--out``. Exact speech
(crossbar at 15) and two controls are always included. Where the number of predictor passes varies from frame to frame
(lossless, lossless-trained, adaptive) the passes are counted, and batches of 16 lines are timed too. Results that are
already in the folder are not computed again, so the same command resumes an interrupted run. Steps can also run
separately: ``--steps codes times distances`` on a GPU, then ``--steps wavs judge report`` on another machine with the
same folder.

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
from qwen3_tts_morph.morph.engine import Engine
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import ENGINES, PRECISIONS, LoadOptions
from qwen3_tts_morph.morph.synthesizer import Synthesizer

from ..results import FOLDER
from .calibrating import calibrate_conditions
from .distance import measure_distances
from .figures import read_rows
from .folder import REFERENCES, About, RunFolder, hash_weights, write_wav
from .judging import clips_of, judge_all, make_judges
from .lines import OWN_LINES, Cast, Task, assign_voices, cast_own, cast_recordings, read_texts
from .registry import CONTROLS, DEFAULT, EXACT, STRATEGIES
from .report import write_report
from .speak import Speaker, make_codes, make_wavs, spoil_codes
from .strategies import Condition, select
from .timing import measure_times

STEPS = ("codes", "times", "distances", "wavs", "judge", "report")
NEED_MODEL = {"codes", "times", "distances", "wavs"}


def parse_arguments(arguments: Sequence[str] | None, strategies: Sequence[str]) -> argparse.Namespace:
    """Read the command line; ``strategies`` are the default ones."""
    doc, _, rest = (__doc__ or "").partition("\n")
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter, epilog=rest
    )
    made.add_argument(
        "--checkpoint", type=Path, help="a Qwen3-TTS folder; not needed for the steps judge and report"
    )
    made.add_argument("--out", type=Path, required=True, help="the run's folder; an interrupted run resumes")
    made.add_argument("--name", help="name of the checkpoint in the results (default: its folder's name)")
    made.add_argument(
        "--lines", type=Path, help="a text file, one sentence per line (default: built-in sentences)"
    )
    made.add_argument(
        "--voices", type=Path, help="a folder of recordings to clone (default: the checkpoint's voices)"
    )
    made.add_argument("--language", default="auto")
    made.add_argument("--limit", type=int, default=0, help="number of lines (0: all)")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument(
        "--strategies", nargs="+", default=list(strategies), metavar="NAME[:S]", help=", ".join(STRATEGIES)
    )
    made.add_argument("--seq-groups", default="1-15", help="e.g. 1-15 or 1,3,5,15")
    made.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS)
    made.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    made.add_argument("--precision", choices=PRECISIONS, default="auto")
    made.add_argument(
        "--engine", choices=ENGINES, default="auto", help="engine timed for the product's strategies"
    )
    made.add_argument("--batch-size", type=int, default=16)
    made.add_argument("--time-lines", type=int, default=5, help="number of lines to time")
    made.add_argument(
        "--distance-lines", type=int, default=20, help="number of lines to measure distances on"
    )
    made.add_argument(
        "--whisper",
        type=Path,
        default=Path("artifacts/whisper-base"),
        help="folder for whisper-base, assembled there on first use",
    )
    made.add_argument("--processes", type=int, default=1, help="number of judging processes")
    made.add_argument("--publish", action="store_true", help="also copy the rows to lab/benchmarks/results")
    return made.parse_args(arguments)


def parse_range(text: str) -> list[int]:
    """Parse "1-3,15" to [1, 2, 3, 15]; raises ValueError for anything else."""
    groups: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise ValueError(f"--seq-groups {text!r} is not a list of numbers: write e.g. 1-15 or 1,3,5,15")
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
    loading = LoadOptions(options.precision)
    model = load_model(options.checkpoint, loading, options.device)
    cast, tasks = choose_lines(model, options)
    about = About(
        checkpoint=options.name or model.name,
        weights=hash_weights(options.checkpoint),
        model=model.summary(),
        sampling=str(asdict(model.sampling)),
        language=options.language,
        voices=cast.about,
        sample_rate=model.sample_rate,
        tasks=tuple(tasks),
        held_end=model.profile.hold_end,
    )
    folder.start(about)
    for name, recordings in cast.references.items():
        for index, one in enumerate(recordings):
            path = folder.root / REFERENCES / name / f"{index}.wav"
            if not path.is_file():
                write_wav(path, one.audio, one.sample_rate)
    synthesizer = Synthesizer(model, Engine(options.engine))
    return Speaker.prepare(synthesizer, tasks, cast.voices, options.language, model.sampling)


def make(
    speaker: Speaker, folder: RunFolder, conditions: Sequence[Condition], options: argparse.Namespace
) -> None:
    """Run the steps that need the model."""
    if {"codes", "times"} & set(options.steps):
        conditions = calibrate_conditions(speaker, folder, conditions)
    if "codes" in options.steps:
        for condition in conditions:
            if condition.strategy.spoil is None:
                make_codes(speaker, folder, condition, options.batch_size)
        exact = next(condition for condition in conditions if condition.is_exact)
        codebook = int(speaker.model.talker.code_predictor.config.vocab_size)
        for condition in conditions:
            if condition.strategy.spoil is not None:
                spoil_codes(folder, condition, exact, speaker.tasks, codebook)
    if "times" in options.steps:
        measure_times(speaker, folder, conditions, options.time_lines)
    if "distances" in options.steps:
        measure_distances(speaker, folder, conditions, options.distance_lines)
    if "wavs" in options.steps:
        for condition in conditions:
            make_wavs(speaker.model, folder, condition, len(speaker.tasks))


def run(options: argparse.Namespace, table: str) -> None:
    """Run the steps; raises ValueError for bad input."""
    names = [*options.strategies, EXACT, *CONTROLS]
    conditions = select(names, parse_range(options.seq_groups), STRATEGIES)
    folder = RunFolder(options.out)
    if NEED_MODEL & set(options.steps):
        make(prepare(options, folder), folder, conditions, options)
    about = folder.about()
    if "judge" in options.steps:
        texts = [task.text for task in about.tasks]
        judges = make_judges(options.whisper, about.language)
        clips = clips_of(folder, [condition.key for condition in conditions], texts)
        judge_all(clips, judges, options.processes, options.whisper, about.language)
    if "report" in options.steps:
        exact = next(condition for condition in conditions if condition.is_exact)
        rows = read_rows(folder, conditions, exact, about.tasks)
        markdown, path = write_report(folder, about, rows, table)
        print(f"{markdown}\nwritten to {options.out}")
        if options.publish:
            shutil.copy(path, FOLDER / path.name)


def main(
    arguments: Sequence[str] | None = None, strategies: Sequence[str] = DEFAULT, table: str = "quality"
) -> int:
    """Read the command line and run; bad input prints one sentence and returns exit code 2."""
    options = parse_arguments(arguments, strategies)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("faster_whisper").setLevel(logging.WARNING)  # it logs every clip
    try:
        run(options, table)
    except ValueError as error:
        print(f"{table}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

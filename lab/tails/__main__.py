"""Train the crossbar's tail for a checkpoint, on codes that the checkpoint itself generates.

    python -m lab.tails --checkpoint DIR
    python -m lab.tails --checkpoint DIR --seq-groups 1,3,5 --minutes 3 --voices FOLDER

Writes ``crossbar.safetensors`` into the checkpoint's folder (or to ``--out``); loading the checkpoint then uses it. No
data is needed: texts are built in (``--texts`` for your own, in the language you want to speak), and voices are the
checkpoint's presets. A Base checkpoint has none: pass ``--voices`` with a folder of recordings.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from qwen3_tts_morph.morph.checkpoint.load import load_model
from qwen3_tts_morph.morph.checkpoint.trained_files import TAIL_FILE, predictor_fingerprint
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.model.tail import Tail, TailInfo
from qwen3_tts_morph.morph.model.weights import stack
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS, LoadOptions, parse_groups

from .config import DEFAULT, Config, load_config
from .examples import Examples, make_examples
from .fit import Teacher, fit
from .measure import measure
from .record import (
    TEXTS,
    Recording,
    find_voices,
    load_recording,
    plan_lines,
    read_texts,
    record,
    save_recording,
)
from .save import save_tails
from .variants import count_bytes

log = logging.getLogger("lab.tails")


@dataclass(frozen=True)
class Run:
    """The options of the command line. ``minutes`` of training, without the recording, are shared by all SEQ_GROUPS."""

    checkpoint: Path
    out: Path
    seq_groups: tuple[int, ...]
    minutes: float
    config: Config
    texts: Path = TEXTS
    voices: Path | None = None
    recording: Path | None = None
    device: str = "cpu"
    precision: str = "auto"

    def __post_init__(self) -> None:
        if PREDICTED_GROUPS in self.seq_groups or not self.seq_groups:
            raise ValueError(f"SEQ_GROUPS {PREDICTED_GROUPS} is exact and has no tail: choose 1 to 14")
        if not self.minutes > 0:
            raise ValueError(f"minutes is {self.minutes}: choose above 0")


def train(run: Run) -> list[Tail]:
    """Record, train a tail for each SEQ_GROUPS and write the file; return the tails."""
    model = load_model(run.checkpoint, LoadOptions(run.precision, "auto"), run.device)
    recording = get_recording(run, model)
    learnt, kept = recording.split(run.config.held_out)
    log.info("%d frames to train on, %d held out", len(learnt.codes), len(kept.codes))
    examples, held_out = (
        make_examples(model, part, run.config.takes, run.config.seed + index, run.seq_groups)
        for index, part in enumerate((learnt, kept))
    )
    tails = [train_tail(run, model, examples, held_out, seq_groups) for seq_groups in run.seq_groups]
    save_tails(run.out, tails, run.checkpoint)
    log.info("wrote %s, %.1f MB", run.out, run.out.stat().st_size / 1e6)
    return tails


def get_recording(run: Run, model: Model) -> Recording:
    """Record the checkpoint's speech, or load what an earlier run with the same ``--recording`` stored."""
    mark = predictor_fingerprint(run.checkpoint)
    if run.recording is not None and run.recording.is_file():
        return load_recording(run.recording, mark)
    config, started = run.config, time.monotonic()
    voices = find_voices(model, run.voices, config.seed)
    texts = read_texts(run.texts)
    log.info("%d lines of %d texts in %d voices", config.lines, len(texts), len(voices))
    lines = plan_lines(texts, voices, config.lines, config.seed)
    recording = record(model, lines, config.batch_size, config.seed)
    log.info("%d frames in %.0f s", len(recording.codes), time.monotonic() - started)
    if run.recording is not None:
        save_recording(recording, run.recording, mark)
    return recording


def train_tail(run: Run, model: Model, examples: Examples, held_out: Examples, seq_groups: int) -> Tail:
    """Train the tail of one SEQ_GROUPS; log its held-out figures and those of the stock crossbar."""
    heads = stack(model.talker.code_predictor.lm_head)
    teacher = Teacher(heads, model.code_tables(), model.sampling.subtalker)
    before = measure({}, teacher, held_out, seq_groups)
    log.info("S=%d stock: %s", seq_groups, before.line())
    parts = fit(teacher, examples, seq_groups, run.config, run.minutes / len(run.seq_groups))
    after = measure(parts, teacher, held_out, seq_groups)
    log.info("S=%d %s: %s", seq_groups, run.config.variant, after.line())
    log.info("S=%d: %.2f MB per frame in bf16", seq_groups, count_bytes(parts, heads[seq_groups:]) / 1e6)
    info = TailInfo(run.config.variant, after.mean_distance, before.mean_distance)
    return Tail(seq_groups, parts, info, heads)


def parse_arguments(arguments: Sequence[str] | None = None) -> Run:
    parser = argparse.ArgumentParser(prog="python -m lab.tails", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--out", type=Path, help=f"output file (default: {TAIL_FILE} in the checkpoint's folder)")
    parser.add_argument("--seq-groups", default="5", help="one or several, e.g. 1,3,5: a tail for each")
    parser.add_argument("--variant", help="what is trained (lab/tails/variants.py)")
    parser.add_argument("--lines", type=int, help="number of lines to speak")
    parser.add_argument("--takes", type=int, help="samples of each recorded frame")
    parser.add_argument("--steps", type=int, help="updates of each tail")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="maximum minutes of training")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--texts", type=Path, default=TEXTS, help="text file, one text per line")
    parser.add_argument("--voices", type=Path, help="folder of recordings and saved voices")
    parser.add_argument("--recording", type=Path, help="file to store the recording in, reused by the next run")
    parser.add_argument("--config", type=Path, default=DEFAULT)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default="auto")
    given = parser.parse_args(arguments)
    names = ("variant", "lines", "takes", "steps", "seed")
    return Run(
        checkpoint=given.checkpoint,
        out=given.out or given.checkpoint / TAIL_FILE,
        seq_groups=tuple(parse_groups(given.seq_groups)),
        minutes=given.minutes,
        config=load_config(given.config, **{name: getattr(given, name) for name in names}),
        texts=given.texts,
        voices=given.voices,
        recording=given.recording,
        device=given.device,
        precision=given.precision,
    )


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    run = parse_arguments()
    log.info("%s", json.dumps(vars(run.config)))
    train(run)
    return 0


if __name__ == "__main__":
    sys.exit(main())

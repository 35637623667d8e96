"""Train the codec for some minutes; call it again with ``--resume`` to continue.

    python -m lab.training.codec.train --corpus DIR --out DIR --minutes N [--resume] [--fast --processes 0]
    python -m lab.training.codec.train --corpus DIR --out DIR --minutes N --start WEIGHTS --codes DIR --drawn DIR \
        --config lab/training/configs/codec_drawn.json
    python -m lab.training.codec.train --corpus DIR --out DIR --time

``out/state.safetensors`` is the complete state, for this machine; ``out/weights/`` has the averaged weights in files of
at most 15 MiB, enough to export or to continue elsewhere (with fresh optimizer state). ``out/train.log`` and
``out/curve.jsonl`` log the figures (losses are process 0's). ``--time`` trains nothing: it prints the cost of a step by
crop length and stage. ``--processes 0`` trains on all GPUs, with separate batches. ``--codes`` and ``--drawn`` tune the
decoder on codes that a talker sampled (``given.py``).
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ..corpus.log import start_log
from ..parallel import World, launch
from .checkpoint import ABOUT, WEIGHTS, read_weights
from .config import DEFAULT, SAMPLE_RATE, SAMPLES_PER_FRAME, Config, load_config
from .cost import estimate, time_steps
from .data import load_speech
from .given import load_given
from .report import STATE, Reporter
from .trainer import Trainer

HELD_OUT_LINES = 200
CLOCK_STEPS = 50  # steps between comparisons with process 0's clock

log = logging.getLogger("lab.training.codec")


@dataclass(frozen=True)
class Slice:
    """The training done by one call."""

    corpus: Path
    out: Path
    minutes: float
    resume: bool
    fast: bool = False
    capture: bool = False
    limit: int = 0
    whole_minutes: float = math.inf
    start: Path | None = None
    given: tuple[Path, Path] | None = None  # folders of recorded and of sampled codes


def prepare(config: Config, options: Slice, world: World) -> Trainer:
    """Return the trainer on its device, resumed if requested, with equal weights in all processes.

    Raises:
        ValueError: ``out`` contains a training and ``resume`` is not set, or the reverse; or the config needs sampled
            codes and none are given.
    """
    start = read_weights(options.start) if options.start else None
    symbols = start.symbols if start else None
    if config.training.drawn and not options.given:
        raise ValueError(f"drawn is {config.training.drawn} but there are no codes: pass --codes and --drawn")
    if options.given:
        speech = load_given(options.corpus, *options.given, config.training, symbols)
    else:
        speech = load_speech(options.corpus, "train", symbols, options.limit)
    speech = speech.to(world.device)
    trainer = Trainer(config, speech, options.fast, world, options.capture)
    state = (options.out / STATE).is_file()
    carried = (options.out / WEIGHTS / ABOUT).is_file()
    if not options.resume and (state or carried):
        raise ValueError(f"{options.out} contains a training: add --resume, or choose another folder")
    if state:
        trainer.resume(options.out / STATE)
    elif carried:
        trainer.restart(read_weights(options.out / WEIGHTS))
    elif start:
        trainer.start_from(start)
    elif options.resume:
        raise ValueError(f"{options.out} contains no training to resume: remove --resume")
    trainer.share()
    return trainer


def train(trainer: Trainer, reporter: Reporter | None, options: Slice, started: float) -> None:
    """Train until the time since ``started`` has passed or the steps are done.

    Args:
        trainer: from ``prepare``.
        reporter: process 0's; None in other processes.
        options: of this call.
        started: ``time.monotonic()``; only process 0's counts.
    """
    plan, world = trainer.config.training, trainer.world
    first, earlier = trainer.step, trainer.time_share
    every = CLOCK_STEPS if world.size > 1 else 1
    while trainer.step < plan.total_steps:
        if (trainer.step - first) % every == 0:
            minutes = world.agree((time.monotonic() - started) / 60)
            if minutes >= options.minutes:
                break
            trainer.time_share = earlier + minutes / options.whole_minutes
        losses = trainer.train_step()
        if trainer.step % plan.log_every == 0:
            trainer.require_same()
        if reporter:
            reporter.after(losses)
    if reporter:
        reporter.save()


def run(config: Config, options: Slice, world: World, timing: bool = False) -> None:
    """Prepare and train, or only time the steps; the time to prepare counts towards the minutes."""
    started = time.monotonic()
    seconds = config.training.batch_frames * SAMPLES_PER_FRAME / SAMPLE_RATE
    if world.first:
        log.info("%d processes, predicted for each: %s", world.size, estimate(config, seconds))
    trainer = prepare(config, options, world)
    if timing:
        for line in time_steps(trainer):
            log.info("%s", line)
        return
    reporter = None
    if world.first:
        lines = options.limit or HELD_OUT_LINES
        dev = load_speech(options.corpus, "dev", trainer.speech.symbols, lines).to(world.device)
        reporter = Reporter(trainer, dev, options.out)
    train(trainer, reporter, options, started)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.codec.train", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--corpus", type=Path, required=True, help="folder of train-*.safetensors")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0, help="minutes of this call, including loading")
    parser.add_argument(
        "--whole-minutes",
        type=float,
        default=math.inf,
        help="minutes of all calls together: the learning rate decays over them",
    )
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--start", type=Path, help="weights folder of another training to start from")
    parser.add_argument("--codes", type=Path, help="recorded codes, to tune the decoder on the --drawn ones")
    parser.add_argument(
        "--drawn", type=Path, help="the codes that lab.training.talker.redraw sampled for them"
    )
    parser.add_argument("--config", type=Path, default=DEFAULT)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--fast", action="store_true", help="fuse and capture (CUDA; takes a minute to start)"
    )
    parser.add_argument(
        "--no-capture", action="store_true", help="with --fast: launch every kernel separately"
    )
    parser.add_argument(
        "--processes", type=int, default=1, help="number of processes, one per GPU (0: all GPUs)"
    )
    parser.add_argument("--limit", type=int, default=0, help="number of lines, for a trial (0: all)")
    parser.add_argument("--time", action="store_true", help="only time the steps")
    given = parser.parse_args(arguments)
    if bool(given.codes) != bool(given.drawn):
        parser.error("--codes and --drawn go together")
    return given


def work(world: World, given: argparse.Namespace) -> None:
    """Run one process's share of the command."""
    if world.first:
        start_log(given.out / "train.log")
    torch.backends.cudnn.benchmark = True  # three crop lengths, so shapes repeat
    torch._dynamo.config.recompile_limit = 64  # SnakeBeta at every width and length
    options = Slice(
        corpus=given.corpus,
        out=given.out,
        minutes=given.minutes,
        resume=given.resume,
        fast=given.fast,
        capture=given.fast and not given.no_capture,
        limit=given.limit,
        whole_minutes=given.whole_minutes,
        start=given.start,
        given=(given.codes, given.drawn) if given.codes else None,
    )
    run(load_config(given.config), options, world, given.time)


def main() -> int:
    given = parse_arguments()
    launch(work, given.processes, given.device, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Train the codec for some minutes; call it again with ``--resume`` to go on.

    python -m lab.training.codec.train --corpus DIR --out DIR --minutes N [--resume] [--fast --processes 0]
    python -m lab.training.codec.train --corpus DIR --out DIR --minutes N --start WEIGHTS --codes DIR --drawn DIR \
        --config lab/training/configs/codec_drawn.json
    python -m lab.training.codec.train --corpus DIR --out DIR --time

``out/state.safetensors`` is the whole state, for this machine; ``out/weights/`` holds the averaged weights in files
of at most 15 MiB, enough to export from and to go on with elsewhere (the optimisers then start anew).
``out/train.log`` and ``out/curve.jsonl`` keep the figures (losses are process 0's). ``--time`` trains nothing: it
prints what a step costs, by crop and stage. ``--processes 0`` trains on all GPUs, each with batches of its own.
``--codes`` and ``--drawn`` tune the decoder on what a talker draws (``given.py``).
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
CLOCK_STEPS = 50  # between two looks of several processes at process 0's clock

log = logging.getLogger("lab.training.codec")


@dataclass(frozen=True)
class Slice:
    """One call's worth of training."""

    corpus: Path
    out: Path
    minutes: float
    resume: bool
    fast: bool = False
    capture: bool = False
    limit: int = 0
    whole_minutes: float = math.inf
    start: Path | None = None
    given: tuple[Path, Path] | None = None  # folders of recorded and of drawn codes


def prepare(config: Config, options: Slice, world: World) -> Trainer:
    """The trainer on its device, resumed when that is asked for, the same in all processes.

    Raises:
        ValueError: ``out`` holds a training and ``resume`` was not given, or the other way round; or drawn codes are
            to be learnt from, and none are given.
    """
    start = read_weights(options.start) if options.start else None
    symbols = start.symbols if start else None
    if config.training.drawn and not options.given:
        raise ValueError(f"drawn is {config.training.drawn}, and no drawn codes: give --codes and --drawn")
    if options.given:
        speech = load_given(options.corpus, *options.given, config.training, symbols)
    else:
        speech = load_speech(options.corpus, "train", symbols, options.limit)
    speech = speech.to(world.device)
    trainer = Trainer(config, speech, options.fast, world, options.capture)
    state = (options.out / STATE).is_file()
    carried = (options.out / WEIGHTS / ABOUT).is_file()
    if not options.resume and (state or carried):
        raise ValueError(f"{options.out} holds a training: add --resume, or give another folder")
    if state:
        trainer.resume(options.out / STATE)
    elif carried:
        trainer.restart(read_weights(options.out / WEIGHTS))
    elif start:
        trainer.start_from(start)
    elif options.resume:
        raise ValueError(f"{options.out} holds no training to resume: leave --resume out")
    trainer.share()
    return trainer


def train(trainer: Trainer, reporter: Reporter | None, options: Slice, started: float) -> None:
    """Train until the time since ``started`` is up or the steps are done.

    Args:
        trainer: prepared.
        reporter: of process 0; the other processes have none.
        options: of this call.
        started: ``time.monotonic()``; process 0's counts.
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
    """Prepare and train, or only time the steps; preparing counts towards the minutes."""
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
    parser.add_argument("--corpus", type=Path, required=True, help="the folder of train-*.safetensors")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call, loading included")
    parser.add_argument(
        "--whole-minutes", type=float, default=math.inf, help="of all calls: the learning rate ends with them"
    )
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--start", type=Path, help="weights folder of another training to begin with")
    parser.add_argument("--codes", type=Path, help="recorded codes, to tune the decoder on --drawn ones")
    parser.add_argument("--drawn", type=Path, help="what lab.training.talker.redraw drew for them")
    parser.add_argument("--config", type=Path, default=DEFAULT)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--fast", action="store_true", help="fuse and capture (CUDA; a minute at the start)")
    parser.add_argument(
        "--no-capture", action="store_true", help="with --fast: launch every kernel by itself"
    )
    parser.add_argument("--processes", type=int, default=1, help="one a GPU (0: on all GPUs)")
    parser.add_argument("--limit", type=int, default=0, help="of lines, to try it (0: all)")
    parser.add_argument("--time", action="store_true", help="only time the steps")
    given = parser.parse_args(arguments)
    if bool(given.codes) != bool(given.drawn):
        parser.error("--codes and --drawn go together")
    return given


def work(world: World, given: argparse.Namespace) -> None:
    """One process's part of the command."""
    if world.first:
        start_log(given.out / "train.log")
    torch.backends.cudnn.benchmark = True  # three crop lengths, the same shapes again and again
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

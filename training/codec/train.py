"""Train the codec for some minutes; call it again with ``--resume`` to go on.

    python -m training.codec.train --corpus DIR --out DIR --minutes N [--resume]
    python -m training.codec.train --corpus DIR --out DIR --time

``out/state.safetensors`` is the whole state, for this machine; ``out/weights/`` holds the averaged weights in files
of at most 15 MiB, enough to export from and to go on with elsewhere (the optimisers then start anew).
``out/train.log`` and ``out/curve.jsonl`` keep the figures. ``--time`` trains nothing: it prints what a step costs, by
crop and stage.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ..corpus.log import start_log
from .checkpoint import ABOUT, WEIGHTS, read_weights, write_weights
from .config import DEFAULT, SAMPLE_RATE, SAMPLES_PER_FRAME, Config, load_config
from .cost import estimate, time_steps
from .data import Speech, held_out, load_speech
from .quantizer import perplexity
from .trainer import Trainer

STATE = "state.safetensors"
HELD_OUT_FRAMES, HELD_OUT_CROPS, HELD_OUT_LINES = 48, 32, 200

log = logging.getLogger("training.codec")


@dataclass(frozen=True)
class Slice:
    """One call's worth of training."""

    corpus: Path
    out: Path
    minutes: float
    resume: bool
    device: torch.device
    fast: bool = False
    limit: int = 0
    whole_minutes: float = math.inf
    start: Path | None = None


class Progress:
    """Sums losses between two log lines and writes both logs."""

    def __init__(self, out: Path, step: int):
        self.curve = out / "curve.jsonl"
        self.sums: dict[str, torch.Tensor] = {}
        self.counts: dict[str, int] = {}
        self.step, self.since = step, time.monotonic()

    def add(self, losses: dict[str, torch.Tensor]) -> None:
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def write(self, trainer: Trainer, total: int) -> None:
        """One line with every loss, the groups' use and the speed; waits for the device once.

        Raises:
            FloatingPointError: a loss that is not finite; the last saved state is still good.
        """
        found = {name: float(value) / self.counts[name] for name, value in self.sums.items()}
        seconds = (time.monotonic() - self.since) / (trainer.step - self.step)
        used = [round(value) for value in perplexity(trainer.codec.quantiser.use).tolist()]
        speed = {
            "rate": trainer.rate(),
            "ms": 1000 * seconds,
            "minutes to the last step": (total - trainer.step) * seconds / 60,
        }
        log.info("step %d  %s  used %s  %s", trainer.step, _words(found), used, _words(speed))
        self.record({"step": trainer.step, **found, "used": used, **speed})
        if bad := [name for name, value in found.items() if not math.isfinite(value)]:
            raise FloatingPointError(
                f"{bad[0]} is not finite at step {trainer.step}: resume with a lower rate"
            )
        self.sums, self.counts, self.step, self.since = {}, {}, trainer.step, time.monotonic()

    def record(self, figures: dict[str, object]) -> None:
        with self.curve.open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")


def _words(figures: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())


def prepare(config: Config, options: Slice) -> Trainer:
    """The trainer on its device, resumed when that is asked for.

    Raises:
        ValueError: ``out`` holds a training and ``resume`` was not given, or the other way round.
    """
    options.out.mkdir(parents=True, exist_ok=True)
    start = read_weights(options.start) if options.start else None
    symbols = start.symbols if start else None
    speech = load_speech(options.corpus, "train", symbols, options.limit).to(options.device)
    trainer = Trainer(config, speech, options.fast)
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
    return trainer


def save(trainer: Trainer, out: Path) -> None:
    """The whole state and the weights to carry."""
    trainer.save(out / STATE)
    write_weights(out / WEIGHTS, trainer.weights())


def train(trainer: Trainer, dev: Speech, options: Slice, started: float) -> None:
    """Train until the time since ``started`` is up or the steps are done; save now and then and at the end."""
    plan = trainer.config.training
    held = held_out(dev, HELD_OUT_FRAMES, HELD_OUT_CROPS)
    saved = time.monotonic()
    progress = Progress(options.out, trainer.step)
    earlier = trainer.time_share
    while trainer.step < plan.total_steps and time.monotonic() - started < 60 * options.minutes:
        trainer.time_share = earlier + (time.monotonic() - started) / (60 * options.whole_minutes)
        progress.add(trainer.train_step())
        if trainer.step % plan.log_every == 0:
            progress.write(trainer, plan.total_steps)
        if trainer.step % plan.validate_every == 0:
            found = trainer.validate(held)
            log.info("held out, step %d  %s", trainer.step, _words(found))
            progress.record({"held out": trainer.step, **found})
        if time.monotonic() - saved > 60 * plan.save_minutes:
            save(trainer, options.out)
            saved = time.monotonic()
    save(trainer, options.out)
    log.info("step %d of %d saved in %s", trainer.step, plan.total_steps, options.out)


def run(config: Config, options: Slice, timing: bool = False) -> None:
    """Prepare and train, or only time the steps; preparing counts towards the minutes."""
    started = time.monotonic()
    seconds = config.training.batch_frames * SAMPLES_PER_FRAME / SAMPLE_RATE
    log.info("predicted: %s", estimate(config, seconds))
    trainer = prepare(config, options)
    if timing:
        for line in time_steps(trainer):
            log.info("%s", line)
        return
    dev = load_speech(options.corpus, "dev", trainer.speech.symbols, options.limit or HELD_OUT_LINES)
    train(trainer, dev.to(options.device), options, started)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m training.codec.train", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--corpus", type=Path, required=True, help="the folder of train-*.safetensors")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call, loading included")
    parser.add_argument(
        "--whole-minutes", type=float, default=math.inf, help="of all calls: the learning rate ends with them"
    )
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--start", type=Path, help="weights folder of another training to begin with")
    parser.add_argument("--config", type=Path, default=DEFAULT)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--fast", action="store_true", help="fuse and capture (CUDA; a minute at the start)")
    parser.add_argument("--limit", type=int, default=0, help="of lines, to try it (0: all)")
    parser.add_argument("--time", action="store_true", help="only time the steps")
    return parser.parse_args(arguments)


def main() -> int:
    given = parse_arguments()
    start_log(given.out / "train.log")
    torch.backends.cudnn.benchmark = True  # three crop lengths, the same shapes again and again
    torch._dynamo.config.recompile_limit = 64  # SnakeBeta at every width and length
    options = Slice(
        corpus=given.corpus,
        out=given.out,
        minutes=given.minutes,
        resume=given.resume,
        device=torch.device(given.device),
        fast=given.fast,
        limit=given.limit,
        whole_minutes=given.whole_minutes,
        start=given.start,
    )
    run(load_config(given.config), options, given.time)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Train the shipped codec's decoder for some minutes; call it again with ``--resume`` to continue.

    python -m lab.training.decoder.train --codec demo_voice/speech_tokenizer --speech DIR --out DIR --minutes N \
        [--resume] [--fast] [--start WEIGHTS] [--decay-minutes M]
    python -m lab.training.decoder.train --codec demo_voice/speech_tokenizer --rehearse 8 --fast --out DIR

``--speech`` has ``train.safetensors`` and ``dev.safetensors`` from ``lab.training.decoder.stretches``.
``out/state.safetensors`` is the complete state, for this machine; ``out/weights/`` has the averaged weights in files of
at most 15 MiB, for ``lab.training.decoder.export`` and for another machine (``--start``). ``out/curve.jsonl`` logs the
figures. ``--rehearse`` runs some steps of each kind on noise, so that the compiler's cache is full before there is
speech.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..codec.config import GROUPS, SAMPLES_PER_FRAME
from ..corpus.log import start_log
from .checkpoint import read_weights
from .config import DEFAULT, Config, load_config
from .network import WindowDecoder, load_codec
from .report import STATE, Reporter
from .stretches import Stretches, load
from .trainer import Trainer

log = logging.getLogger("lab.training.decoder")


@dataclass(frozen=True)
class Slice:
    """The training done by one call.

    Args:
        codec, speech, out: folders.
        minutes: of this call, including loading.
        resume: continue the training in ``out``.
        start: weights of an earlier training to go on from.
        decay_minutes: at the end of this call, in which the learning rate falls.
        device: as torch names it.
        fast: fuse kernels and run losses concurrently (CUDA).
        capture: capture updates and replay them (CUDA).
    """

    codec: Path
    speech: Path
    out: Path
    minutes: float
    resume: bool = False
    start: Path | None = None
    decay_minutes: float = 0.0
    device: str = "cpu"
    fast: bool = False
    capture: bool = False

    def __post_init__(self) -> None:
        if self.minutes < 0 or self.decay_minutes < 0:
            raise ValueError(
                f"minutes={self.minutes}, decay_minutes={self.decay_minutes}: must not be negative"
            )


def prepare(config: Config, options: Slice, speech: Stretches) -> Trainer:
    """Return the trainer on its device, resumed if requested.

    Raises:
        ValueError: ``out`` contains a training and ``resume`` is not set, or the reverse.
    """
    network = WindowDecoder(load_codec(options.codec), config.windows.decoded, options.fast)
    trainer = Trainer(
        config, network.to(options.device), speech.to(options.device), options.fast, options.capture
    )
    state = options.out / STATE
    if state.is_file() != options.resume:
        problem = "contains a training: add --resume" if state.is_file() else "contains no training to resume"
        raise ValueError(f"{options.out} {problem}, or choose another folder")
    if options.resume:
        trainer.resume(state)
    elif options.start:
        trainer.start_from(read_weights(options.start))
    return trainer


def train(trainer: Trainer, reporter: Reporter, options: Slice, started: float) -> None:
    """Train until the minutes since ``started`` (``time.monotonic()``) have passed, validate and save."""
    end = started + 60 * options.minutes
    fall = 60 * options.decay_minutes
    reporter.validate()
    while (left := end - time.monotonic()) > 0:
        trainer.decayed = max(0.0, 1 - left / fall) if fall else 0.0
        reporter.after(trainer.train_step())
    reporter.validate()
    reporter.save()


def run(config: Config, options: Slice) -> None:
    """Load, prepare and train."""
    started = time.monotonic()
    trainer = prepare(config, options, load(options.speech / "train.safetensors"))
    dev = load(options.speech / "dev.safetensors").to(options.device)
    reporter = Reporter(trainer, dev, options.out)
    log.info("ready after %.0f s, at step %d", time.monotonic() - started, trainer.step)
    train(trainer, reporter, options, started)


def rehearse(config: Config, options: Slice, steps: int) -> None:
    """Run ``steps`` steps of each kind on noise, and log their time."""
    frames = 4 * config.windows.frames
    noise = torch.randn(frames * SAMPLES_PER_FRAME) * 1000
    codes = torch.zeros(frames, GROUPS, dtype=torch.int16)
    speech = Stretches(noise.short(), codes, torch.tensor([0, frames]))
    short = replace(config, training=replace(config.training, alone_steps=steps))
    trainer = prepare(short, options, speech)
    for kind in ("discriminators alone", "both"):
        began = time.monotonic()
        for _ in range(steps):
            losses = trainer.train_step()
        found = ", ".join(f"{name} {float(value):.3g}" for name, value in losses.items())
        log.info("%s: %d steps in %.1f s, %s", kind, steps, time.monotonic() - began, found)
    began = time.monotonic()
    for _ in range(steps):
        losses = trainer.train_step()
    last = float(losses["fooling"])
    log.info("again: %.1f ms a step (fooling %.3g)", 1000 * (time.monotonic() - began) / steps, last)


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.decoder.train", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--codec", type=Path, required=True, help="the shipped speech_tokenizer folder")
    parser.add_argument("--speech", type=Path, help="folder of train.safetensors and dev.safetensors")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=9.0, help="minutes of this call, including loading")
    parser.add_argument("--decay-minutes", type=float, default=0.0, help="of these, with a falling rate")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--start", type=Path, help="weights folder of another training to go on from")
    parser.add_argument("--config", type=Path, default=DEFAULT)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--fast", action="store_true", help="fuse and capture (CUDA)")
    parser.add_argument(
        "--no-capture", action="store_true", help="with --fast: launch every kernel separately"
    )
    parser.add_argument("--rehearse", type=int, default=0, help="only run this many steps, on noise")
    given = parser.parse_args(arguments)
    if not given.rehearse and given.speech is None:
        parser.error("--speech is missing")
    return given


def main() -> int:
    given = parse_arguments()
    start_log(given.out / "train.log")
    torch.backends.cudnn.benchmark = True  # every step has the same shapes
    torch._dynamo.config.recompile_limit = 64  # SnakeBeta at every width and length
    options = Slice(
        codec=given.codec,
        speech=given.speech or given.out,
        out=given.out,
        minutes=given.minutes,
        resume=given.resume,
        start=given.start,
        decay_minutes=given.decay_minutes,
        device=given.device,
        fast=given.fast,
        capture=given.fast and not given.no_capture,
    )
    config = load_config(given.config)
    if given.rehearse:
        rehearse(config, options, given.rehearse)
    else:
        run(config, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

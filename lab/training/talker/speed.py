"""Measure a training step on random codes before starting a training; also checks that everything runs on a machine.

    python -m lab.training.talker.speed --steps 300
    python -m lab.training.talker.speed --steps 300 --processes 4 --workers 15

Random utterances of 1.3 to 4 seconds, as in the corpus. Prints a line for each mode: steps per second, the rate of
batches without a model, memory use and the last losses, which must be similar in all modes. ``--profile`` adds the
device time by kernel.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..parallel import World, launch
from .batch import Batch
from .batches import Lines, batches_of
from .codes import CodeWriter, Utterance, load_codes
from .config import DEFAULT, load_config
from .loop import Trainer
from .train import Run, build_trainer, prepare

WORDS = (
    "the",
    "of",
    "a",
    "to",
    "in",
    "was",
    "he",
    "said",
    "about",
    "seven",
    "people",
    "never",
    "water",
    "little",
)
WARM_UP = 200  # steps: enough to meet and capture the usual lengths
PROFILED = 20
MODES = {"plain": (False, False), "compiled": (True, False), "captured": (False, True), "both": (True, True)}


def write_random_codes(folder: Path, utterances: int, codebook: int, voices: int, seed: int = 0) -> None:
    """Write code shards of noise, with texts of about three words per second."""
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    writer = CodeWriter(folder, codebook)
    for number in range(utterances):
        frames = int(rng.integers(16, 51))
        text = " ".join(rng.choice(WORDS, size=max(1, frames // 4))).capitalize() + "."
        writer.add(
            Utterance(
                text=text,
                speaker=f"voice_{number % voices:03}",
                split="dev" if number % 50 == 0 else "train",
                codes=torch.randint(codebook, (frames, 16), generator=generator).short(),
                mel=torch.randint(60, 200, (int(frames * 7.5), 128), generator=generator).to(torch.uint8),
                phones=torch.randint(40, (frames, 2), generator=generator).short(),
            )
        )
    writer.flush()


@dataclass(frozen=True)
class Measurement:
    """What to measure: ``folder`` contains ``codes/``, ``mode`` is one of ``MODES``."""

    config: Path
    folder: Path
    mode: str
    steps: int
    warm_up: int
    workers: int
    profiled: bool = False


def measure(world: World, options: Measurement) -> dict[str, object]:
    """Return steps per second and related figures."""
    codes = load_codes(options.folder / "codes")
    compiled, captured = MODES[options.mode]
    run = Run(
        codes=options.folder,
        out=options.folder / "out",
        minutes=60.0,
        config=options.config,
        compiled=compiled,
        captured=captured,
    )
    config, corpus = prepare(run, load_config(options.config), codes, world)
    torch.set_float32_matmul_precision("high")
    trainer = build_trainer(run, config, codes, world)
    lines = Lines(corpus, "train", seed=1, rank=world.rank)
    batches = batches_of(lines, options.workers, pin=world.device.type == "cuda")
    began = time.monotonic()
    positions = [batch.lines * batch.length for batch in itertools.islice(batches, options.steps)]
    alone = options.steps / (time.monotonic() - began)
    trainer.learner.train()
    warm = _steps(trainer, batches, options.warm_up)
    took = _steps(trainer, batches, options.steps)
    losses = trainer.validate([batch for _, batch in zip(range(2), batches, strict=False)])
    rate = options.steps / took
    flops = config.shape.step_flops(int(np.mean(positions)), config.mix.predictor_frames)
    report: dict[str, object] = {
        "mode": options.mode,
        "processes": world.size,
        "steps_per_second": round(rate, 2),
        "warm_up_seconds": round(warm, 1),
        "batches_per_second_alone": round(alone, 1),
        "positions_per_step": round(float(np.mean(positions))),
        "tflops": round(flops * rate / 1e12, 2),
        "losses": {name: round(float(value.mean()), 3) for name, value in losses.items()},
        "parameters": trainer.parameters()["in all"],
    }
    if world.device.type == "cuda":
        report["gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    if options.profiled and world.first and world.size == 1:
        report["kernels"] = _profile(trainer, batches)
    return report


def _steps(trainer: Trainer, batches: Iterator[Batch], count: int) -> float:
    """Return the seconds that ``count`` steps take."""
    began = time.monotonic()
    for batch in itertools.islice(batches, count):
        trainer.train_step(batch.to(trainer.device))
    trainer.world.meet()
    return time.monotonic() - began


def _profile(trainer: Trainer, batches: Iterator[Batch]) -> str:
    """Return a table of the time of some steps by kernel."""
    cuda = trainer.device.type == "cuda"
    kind = torch.profiler.ProfilerActivity.CUDA if cuda else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[kind]) as found:
        _steps(trainer, batches, PROFILED)
    order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
    return found.key_averages().table(sort_by=order, row_limit=40, max_name_column_width=70)


def member(world: World, options: Measurement) -> None:
    """Run one of the processes; process 0 prints its line, then the table."""
    report = measure(world, options)
    if world.first:
        kernels = report.pop("kernels", "")
        print(json.dumps(report), kernels, sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", type=Path, default=DEFAULT)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--warm-up", type=int, default=WARM_UP)
    parser.add_argument("--codebook", type=int, default=512)
    parser.add_argument("--utterances", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=6, help="per process")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--modes", default="plain,both", help=", ".join(MODES))
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_random_codes(folder / "codes", given.utterances, given.codebook, voices=200)
        for mode in given.modes.split(","):
            options = Measurement(
                config=given.config,
                folder=folder,
                mode=mode,
                steps=given.steps,
                warm_up=given.warm_up,
                workers=given.workers,
                profiled=given.profile,
            )
            launch(member, given.processes, given.device, options)


if __name__ == "__main__":
    main()

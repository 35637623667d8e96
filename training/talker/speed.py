"""Measure a training step on made-up codes, before a training is paid for; also proves that everything runs there.

    python -m training.talker.speed --steps 60

Random utterances of 1.5 to 6 seconds. Prints steps a second with the layers as they are and compiled, the batches' own
rate without a model, and the memory used.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from .batches import Lines, batches_of
from .codes import CodeWriter, Utterance, load_codes
from .config import DEFAULT, load_config
from .loop import Trainer
from .train import Run, build_learner, prepare

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
WARM_UP = 10


def write_random_codes(folder: Path, utterances: int, codebook: int, voices: int, seed: int = 0) -> None:
    """Code shards of noise, with texts of about three words a second."""
    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    writer = CodeWriter(folder, codebook)
    for number in range(utterances):
        frames = int(rng.integers(18, 76))
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


def measure(config_path: Path, folder: Path, steps: int, workers: int, device: str, compiled: bool) -> str:
    """One line: steps a second and what goes with them."""
    codes = load_codes(folder / "codes")
    run = Run(codes=folder, out=folder / "out", minutes=60.0, config=config_path, device=device)
    config, corpus = prepare(run, load_config(config_path), codes)
    where = torch.device(device)
    torch.set_float32_matmul_precision("high")
    learner = build_learner(config, codes).to(where)
    trainer = Trainer(config, learner, codes, run.out, run.minutes, where)
    batches = batches_of(Lines(corpus, "train", seed=1), workers, pin=where.type == "cuda")
    began = time.monotonic()
    positions = [batch.text.numel() for batch in itertools.islice(batches, steps)]
    alone = steps / (time.monotonic() - began)
    if compiled:
        trainer.compile()
    learner.train()
    began = time.monotonic()
    for batch in itertools.islice(batches, WARM_UP):
        trainer.train_step(batch.to(where))
    _finish(where)
    warm = time.monotonic() - began
    began = time.monotonic()
    lines = 0
    for batch in itertools.islice(batches, steps):
        losses, _ = trainer.train_step(batch.to(where))
        lines += len(batch.text)
    total = float(losses["groups"].detach().sum())
    _finish(where)
    rate = steps / (time.monotonic() - began)
    flops = config.shape.step_flops(int(np.mean(positions)), config.mix.predictor_frames)
    report = {
        "compiled": compiled,
        "steps_per_second": round(rate, 2),
        "lines_per_step": round(lines / steps, 1),
        "warm_up_seconds": round(warm, 1),
        "batches_per_second_alone": round(alone, 1),
        "tflops": round(flops * rate / 1e12, 2),
        "finite": bool(np.isfinite(total)),
        "parameters": trainer.parameters()["in all"],
    }
    if where.type == "cuda":
        report["gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return json.dumps(report)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", type=Path, default=DEFAULT)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--codebook", type=int, default=512)
    parser.add_argument("--utterances", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--modes", default="eager,compiled")
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_random_codes(folder / "codes", given.utterances, given.codebook, voices=200)
        for mode in given.modes.split(","):
            print(
                measure(given.config, folder, given.steps, given.workers, given.device, mode == "compiled"),
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Tasks of the first process besides training: logs, validation on held-out crops, and saving."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from .checkpoint import WEIGHTS, write_weights
from .data import Speech, held_out
from .quantizer import perplexity
from .trainer import Trainer

STATE = "state.safetensors"
HELD_OUT_FRAMES, HELD_OUT_CROPS = 48, 32

log = logging.getLogger("lab.training.codec")


class Reporter:
    """Sums losses between log lines, writes both logs, and saves regularly.

    Args:
        trainer: the training to report.
        dev: held-out speech, on the trainer's device.
        out: folder for logs, state and weights.
    """

    def __init__(self, trainer: Trainer, dev: Speech, out: Path):
        self.trainer, self.out = trainer, out
        self.plan = trainer.config.training
        self.held = held_out(dev, HELD_OUT_FRAMES, HELD_OUT_CROPS)
        self.sums: dict[str, torch.Tensor] = {}
        self.counts: dict[str, int] = {}
        self.step = trainer.step
        self.since = self.saved = time.monotonic()

    def after(self, losses: Mapping[str, torch.Tensor]) -> None:
        """Add a step's losses, and log, validate or save if it is time.

        Raises:
            FloatingPointError: a loss is not finite; the last saved state is still good.
        """
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value
            self.counts[name] = self.counts.get(name, 0) + 1
        step = self.trainer.step
        if step % self.plan.log_every == 0:
            self.write()
        if step % self.plan.validate_every == 0:
            found = self.trainer.validate(self.held)
            log.info("held out, step %d  %s", step, _words(found))
            self._record({"held out": step, **found})
        if time.monotonic() - self.saved > 60 * self.plan.save_minutes:
            self.save()

    def write(self) -> None:
        """Log one line with every loss, each group's used codes and the speed; waits for the device once."""
        trainer, total = self.trainer, self.plan.total_steps
        found = {name: float(value) / self.counts[name] for name, value in self.sums.items()}
        seconds = (time.monotonic() - self.since) / (trainer.step - self.step)
        used = [round(value) for value in perplexity(trainer.codec.quantiser.use).tolist()]
        speed = {
            "rate": trainer.rate(),
            "ms": 1000 * seconds,
            "minutes to the last step": (total - trainer.step) * seconds / 60,
        }
        log.info("step %d  %s  used %s  %s", trainer.step, _words(found), used, _words(speed))
        self._record({"step": trainer.step, **found, "used": used, **speed})
        if bad := [name for name, value in found.items() if not math.isfinite(value)]:
            raise FloatingPointError(
                f"{bad[0]} is not finite at step {trainer.step}: resume with a lower learning rate"
            )
        self.sums, self.counts, self.step, self.since = {}, {}, trainer.step, time.monotonic()

    def save(self) -> None:
        """Save the complete state, and the weights in small files."""
        self.trainer.save(self.out / STATE)
        write_weights(self.out / WEIGHTS, self.trainer.weights())
        self.saved = time.monotonic()
        log.info("step %d of %d saved in %s", self.trainer.step, self.plan.total_steps, self.out)

    def _record(self, figures: dict[str, object]) -> None:
        with (self.out / "curve.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")


def _words(figures: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in figures.items())

"""Logs, validation on held-out crops, and saving."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from ..periodicity import periodicity, pitch_of
from .batches import held_out
from .checkpoint import write_weights
from .stretches import Stretches
from .trainer import Trainer

STATE, WEIGHTS = "state.safetensors", "weights"
HELD_OUT_FRAMES, HELD_OUT_CROPS = 24, 60  # held-out lines are hardly longer

log = logging.getLogger("lab.training.decoder")


class Reporter:
    """Sums losses between log lines, writes ``curve.jsonl``, validates, and saves regularly.

    Args:
        trainer: the training to report.
        dev: held-out speech, on the trainer's device.
        out: folder for the curve, the state and the weights.
    """

    def __init__(self, trainer: Trainer, dev: Stretches, out: Path):
        self.trainer, self.out = trainer, out
        self.plan = trainer.config.training
        self.codes, self.wave = held_out(dev, HELD_OUT_FRAMES, HELD_OUT_CROPS)
        self.pitch = pitch_of(self.wave)
        self._record({"recordings": len(self.wave), **periodicity(self.wave, self.pitch)})
        self.sums: dict[str, torch.Tensor] = {}
        self.count = 0
        self.since = self.saved = time.monotonic()

    def after(self, losses: Mapping[str, torch.Tensor]) -> None:
        """Add a step's losses, and log, validate or save if it is time.

        Raises:
            FloatingPointError: a loss is not finite; the last saved state is still good.
        """
        if losses.keys() != self.sums.keys():
            self.sums, self.count, self.since = {}, 0, time.monotonic()
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, torch.zeros_like(value)) + value
        self.count += 1
        if self.trainer.step % self.plan.log_every == 0:
            self.write()
        if self.trainer.step % self.plan.validate_every == 0:
            self.validate()
        if time.monotonic() - self.saved > 60 * self.plan.save_minutes:
            self.save()

    def write(self) -> None:
        """Log one line with every loss and the speed; waits for the device once."""
        found = {name: float(value) / self.count for name, value in self.sums.items()}
        speed = {
            "rate": self.trainer.rate(),
            "ms": 1000 * (time.monotonic() - self.since) / self.count,
        }
        self._record({"step": self.trainer.step, **found, **speed})
        if bad := [name for name, value in found.items() if not math.isfinite(value)]:
            raise FloatingPointError(
                f"{bad[0]} is not finite at step {self.trainer.step}: resume with a lower learning rate"
            )
        self.sums, self.count, self.since = {}, 0, time.monotonic()

    def validate(self) -> dict[str, float]:
        """Judge the averaged weights on the held-out crops."""
        began = time.monotonic()
        found = self.trainer.validate(self.codes, self.wave, self.pitch)
        self._record({"held out": self.trainer.step, **found})
        self.since += time.monotonic() - began
        return found

    def save(self) -> None:
        """Save the complete state, and the weights in small files."""
        began = time.monotonic()
        self.trainer.save(self.out / STATE)
        write_weights(self.out / WEIGHTS, self.trainer.weights())
        self.saved = time.monotonic()
        self.since += self.saved - began
        log.info("step %d saved in %s, %.1f s", self.trainer.step, self.out, self.saved - began)

    def _record(self, figures: dict[str, float]) -> None:
        log.info("%s", "  ".join(f"{name} {value:.4g}" for name, value in figures.items()))
        with (self.out / "curve.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")

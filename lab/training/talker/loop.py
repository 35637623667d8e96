"""The training loop: a learning rate that decays over the available time, logs, validation and saving."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from ..average import Average
from ..parallel import World
from ..replay import Replayer
from ..storage import load_optimizer, load_state, optimizer_tensors, save_state
from .batch import Batch
from .checkpoint import save_weights
from .codes import Codes
from .config import Config
from .objective import Learner
from .update import Losses, Updater
from .voices import embed_voices

log = logging.getLogger(__name__)

STATE = "state.safetensors"
FIRST_STEPS = 20  # steps before the first log line, so that a bad start shows early
AGREE_EVERY = 10  # steps between checks of the clock


@dataclass(frozen=True)
class Plan:
    """How to run a training.

    Args:
        out: folder for weights, state and log.
        minutes: of the complete training.
        captured: replay the updates from CUDA graphs.
    """

    out: Path
    minutes: float
    captured: bool = False


class Trainer:
    """One training, which can be run in slices.

    Args:
        config: with a complete shape.
        learner: on ``device``, with the same weights in all processes.
        codes: for the references' mels, which are kept on the device.
        plan: folder, time and mode.
        world: the processes that train together, each on its own lines.
    """

    def __init__(self, config: Config, learner: Learner, codes: Codes, plan: Plan, world: World):
        self.config, self.learner, self.codes, self.out = config, learner, codes, plan.out
        self.minutes, self.world, self.device = plan.minutes, world, world.device
        self.mels = codes.mels.to(self.device)
        self.updater = Updater(config, learner, self.mels)
        self.replayer = Replayer() if plan.captured else None
        weights = {name: value for name, value in learner.named_parameters() if value.requires_grad}
        self.average = Average(weights, config.training.ema)
        self.step, self.seconds = 0, 0.0
        self._count()

    def parameters(self) -> dict[str, int]:
        """Return the number of exported weights, by part and in total."""
        parts = self.learner.network.shape.parameters()
        parts["speaker encoder"] = sum(weight.numel() for weight in self.learner.encoder.parameters())
        return {**parts, "in all": sum(parts.values())}

    def compile(self) -> None:
        """Compile each layer separately: the layers of a stack share their code, which is compiled once.

        B and T of the talker's batches vary; the predictor's shape does not.
        """
        for stack, dynamic in ((self.learner.network.talker, True), (self.learner.network.predictor, False)):
            for layer in stack.layers:
                layer.compile(dynamic=dynamic)

    def learning_rate(self) -> float:
        """Return the learning rate: warm-up by steps, then half a cosine over the time."""
        options = self.config.training
        warm = min(1.0, (self.step + 1) / options.warmup_steps)
        done = min(1.0, self.seconds / (60 * self.minutes))
        fall = options.final_rate + (1 - options.final_rate) * 0.5 * (1 + math.cos(math.pi * done))
        return options.learning_rate * warm * fall

    def train_step(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Run one update with all processes; return this one's losses, which the next call may overwrite."""
        updater = self.updater

        def learn(flat: torch.Tensor, shares: torch.Tensor) -> Losses:
            return updater.learn(batch._replace(flat=flat), shares)

        updater.set_rate(self.learning_rate())
        losses = self._run((batch.lines, batch.length), learn, (batch.flat, self._shares(batch)))
        # Average between the two captures: batches of different shapes are captured at different times per process.
        self.world.average([updater.gradient])
        found = {**losses, **self._run("apply", updater.apply, ())}
        self.step += 1
        self.average.update(self.step)
        return found

    def _run(
        self, kind: Hashable, update: Callable[..., Losses], inputs: Sequence[torch.Tensor]
    ) -> Mapping[str, torch.Tensor]:
        return update(*inputs) if self.replayer is None else self.replayer.run(kind, update, inputs)

    def _shares(self, batch: Batch) -> torch.Tensor:
        """Return this process's number of targets relative to the mean of all processes, ``[3]``."""
        known = batch.known()
        mean = known.clone()
        self.world.average([mean])
        return known / mean.clamp(min=1)

    def run(self, batches: Iterator[Batch], held_out: Sequence[Batch], until: float, most_steps: int) -> None:
        """Train until the minutes are used, the clock (monotonic) passes ``until`` or the steps are done; then save.

        Process 0's clock decides for all; it alone logs, validates and saves.
        """
        self.learner.train()
        before, first, over = self.seconds, self.step, False
        began = saved = time.monotonic()
        self._count()
        while not over:
            losses = self.train_step(next(batches).to(self.device))
            if self.step == first + 1:
                began = time.monotonic()  # compiling does not count towards the minutes
            self._watch(losses, held_out)
            stop = bool(most_steps) and self.step >= most_steps
            if stop or self.step % AGREE_EVERY == 0:
                now = time.monotonic()
                self.seconds = self.world.agree(before + now - began)
                over = stop or self.world.agree(float(now >= until)) > 0 or self.seconds >= 60 * self.minutes
                if not over and now > saved + 60 * self.config.training.save_minutes:
                    self.save()
                    saved = now
        if held_out and self.world.first:
            self.validate(held_out)
        self.save()

    def _watch(self, losses: Mapping[str, torch.Tensor], held_out: Sequence[Batch]) -> None:
        """Log and validate when it is time."""
        options = self.config.training
        if self.world.first and (self.step % options.log_every == 0 or self.step == FIRST_STEPS):
            self._require_finite(losses)
            rate = (self.step - self.counted_from[0]) / (time.monotonic() - self.counted_from[1])
            self._report("train", losses, steps_per_second=rate, lr=self.learning_rate())
            self._count()
        if self.step % options.validate_every == 0:
            self.world.require_same(self.average.followed)
            if held_out and self.world.first:
                self.validate(held_out)
                self._count()

    def _count(self) -> None:
        """Restart the measurement of steps per second."""
        self.counted_from = (self.step, time.monotonic())

    def _require_finite(self, losses: Mapping[str, torch.Tensor]) -> None:
        if not all(torch.isfinite(value).all() for value in losses.values()):
            raise FloatingPointError(
                f"loss or gradient is not finite at step {self.step}: lower learning_rate, resume from the last state"
            )

    @torch.no_grad()
    def validate(self, held_out: Sequence[Batch]) -> dict[str, torch.Tensor]:
        """Log the averaged weights' losses and accuracies on held-out batches, without noise; return the losses."""
        self.learner.eval()
        losses: list[dict[str, torch.Tensor]] = []
        accuracies: list[dict[str, torch.Tensor]] = []
        # Compiling the layers again for this mode would cost more than running them uncompiled.
        eager = torch.compiler.set_stance("force_eager")
        with self.average.in_place(), self.updater.autocast(), eager:
            for batch in held_out:
                outputs = self.updater.outputs(batch.to(self.device))
                losses.append(outputs.losses(0.0))
                accuracies.append(outputs.accuracies())
        self.learner.train()
        means = [
            {name: torch.stack([one[name] for one in many]).mean(0) for name in many[0]}
            for many in (losses, accuracies)
        ]
        self._report("held out", *means)
        return means[0]

    def _report(
        self,
        name: str,
        losses: Mapping[str, torch.Tensor],
        accuracies: Mapping[str, torch.Tensor] | None = None,
        **more: float,
    ) -> None:
        """Write a log line for people and a JSON line for plots."""
        loss, right = _rounded(losses), _rounded(accuracies or {})
        groups = loss["groups"]
        parts = [f"g0 {groups[0]:.3f} rest {sum(groups[1:]) / len(groups[1:]):.3f}"]
        parts += [f"{key} {loss[key][0]:.3f}" for key in ("phones", "speakers", "styles") if key in loss]
        parts.append(" ".join(f"{value:.2f}" for value in groups[1:]))
        if right:
            hits = right["groups"]
            parts.append(f"right: g0 {hits[0]:.3f} rest {sum(hits[1:]) / len(hits[1:]):.3f}")
            parts += [f"{key} {right[key][0]:.3f}" for key in ("phones", "speakers") if key in right]
        parts += [f"{key} {value:.4g}" for key, value in more.items()]
        log.info("%s step %d min %.2f | %s", name, self.step, self.seconds / 60, " | ".join(parts))
        row = {"name": name, "step": self.step, "seconds": round(self.seconds, 1), "loss": loss, **more}
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, "accuracy": right}) + "\n")

    def save(self) -> None:
        """Write the averaged weights and the state to resume from; only process 0 does."""
        if not self.world.first:
            return
        self.learner.eval()
        with self.average.in_place():
            meta = {
                "step": self.step,
                "minutes": round(self.seconds / 60, 2),
                "codebook": self.codes.codebook,
            }
            voices = embed_voices(self.codes, self.mels, partial(self.learner.embed_speakers, noise=False))
            save_weights(self.out / "weights", self.learner, voices, self.codes.names, meta)
        self.learner.train()
        groups = {
            "learner": self.learner.state_dict(),
            "average": self.average.values,
            "optimizer": optimizer_tensors(self.updater.optimizer),
        }
        save_state(self.out / STATE, groups, {"step": str(self.step), "seconds": str(self.seconds)})
        log.info("saved at step %d", self.step)

    def load(self, path: Path) -> None:
        """Resume from a state; raises ValueError if there is none."""
        groups, about = load_state(path)
        self.learner.load_state_dict(groups["learner"])
        self.average.load(groups["average"])
        load_optimizer(self.updater.optimizer, groups["optimizer"])
        self.step, self.seconds = int(about["step"]), float(about["seconds"])
        log.info("resumed at step %d, minute %.2f", self.step, self.seconds / 60)


def _rounded(values: Mapping[str, torch.Tensor]) -> dict[str, list[float]]:
    return {key: [round(x, 4) for x in value.reshape(-1).tolist()] for key, value in values.items()}

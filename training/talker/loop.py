"""The training loop: one optimizer, a learning rate that ends with the time, logs, validation and saving."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..average import Average
from ..storage import load_optimizer, load_state, optimizer_tensors, save_state
from .batches import Batch
from .checkpoint import save_weights
from .codes import Codes
from .config import Config
from .objective import Learner, total_loss

log = logging.getLogger(__name__)

BETAS = (0.9, 0.98)
VOICE_FRAMES = 320  # mel frames of each utterance that a voice's mean embedding is made of
VOICE_UTTERANCES = 32
STATE = "state.safetensors"
FIRST_STEPS = 20  # before the first log line, so that a wrong start shows at once


class Trainer:
    """One training, to be run in slices.

    Args:
        config: with the shape filled in.
        learner: on ``device``.
        codes: for the references' mels, which are kept on the device.
        out: where weights, state and log go.
        minutes: of the whole training.
        device: in bf16 on CUDA, else in float32.
    """

    def __init__(
        self, config: Config, learner: Learner, codes: Codes, out: Path, minutes: float, device: torch.device
    ):
        self.config, self.learner, self.codes, self.out = config, learner, codes, out
        self.minutes, self.device = minutes, device
        self.mels = codes.mels.to(device)
        weights = {name: value for name, value in learner.named_parameters() if value.requires_grad}
        self.average = Average(weights, config.training.ema)
        self.optimizer = self._optimizer()
        self.step, self.seconds = 0, 0.0

    def _optimizer(self) -> torch.optim.Optimizer:
        """AdamW; norms and biases do not decay."""
        options = self.config.training
        matrices = [weight for weight in self.learner.parameters() if weight.dim() > 1]
        vectors = [weight for weight in self.learner.parameters() if weight.dim() <= 1]
        groups: list[dict[str, Any]] = [
            {"params": matrices, "weight_decay": options.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        fused = self.device.type == "cuda"
        return torch.optim.AdamW(groups, lr=options.learning_rate, betas=BETAS, fused=fused)

    def parameters(self) -> dict[str, int]:
        """Weights that are exported, by part and in all."""
        parts = self.learner.network.shape.parameters()
        parts["speaker encoder"] = sum(weight.numel() for weight in self.learner.encoder.parameters())
        return {**parts, "in all": sum(parts.values())}

    def compile(self) -> None:
        """Compile the layers, one by one: they share their code, so that it is compiled once for all of a stack.

        B and T of the talker's batches vary, the predictor's shape does not.
        """
        for stack, dynamic in ((self.learner.network.talker, True), (self.learner.network.predictor, False)):
            for layer in stack.layers:
                layer.compile(dynamic=dynamic)

    def learning_rate(self) -> float:
        """Warm-up by steps, then half a cosine over the time."""
        options = self.config.training
        warm = min(1.0, (self.step + 1) / options.warmup_steps)
        done = min(1.0, self.seconds / (60 * self.minutes))
        fall = options.final_rate + (1 - options.final_rate) * 0.5 * (1 + math.cos(math.pi * done))
        return options.learning_rate * warm * fall

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda")

    def train_step(self, batch: Batch) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """One update; gives losses, and accuracies in the steps that are logged."""
        options = self.config.training
        with self.autocast():
            outputs = self.learner(batch, self.mels[batch.mel_rows])
            losses = outputs.losses(options.label_smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        total_loss(losses, options).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.learner.parameters(), options.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        self.optimizer.step()
        self.step += 1
        self.average.update(self.step)
        losses["gradient"] = norm
        return losses, outputs.accuracies() if self._logs() else {}

    def _logs(self) -> bool:
        return self.step % self.config.training.log_every == 0 or self.step == FIRST_STEPS

    def run(self, batches: Iterator[Batch], held_out: Sequence[Batch], until: float, most_steps: int) -> None:
        """Train until the minutes are over, the clock (monotonic) reads ``until`` or the steps are done; then save."""
        options = self.config.training
        self.learner.train()
        began = last_save = time.monotonic()
        before, counted, last_step, first = self.seconds, began, self.step, self.step
        while self.seconds < 60 * self.minutes and time.monotonic() < until:
            losses, accuracies = self.train_step(next(batches).to(self.device))
            if self._logs():
                self._require_finite(losses)
                rate = (self.step - last_step) / (time.monotonic() - counted)
                self._report("train", losses, accuracies, steps_per_second=rate, lr=self.learning_rate())
                counted, last_step = time.monotonic(), self.step
            if held_out and self.step % options.validate_every == 0:
                self.validate(held_out)
                counted, last_step = time.monotonic(), self.step
            if time.monotonic() - last_save > 60 * options.save_minutes:
                self.save()
                last_save = counted = time.monotonic()
                last_step = self.step
            if self.step == first + 1:
                began = time.monotonic()  # compiling belongs to no one's minutes
            self.seconds = before + time.monotonic() - began
            if most_steps and self.step >= most_steps:
                break
        if held_out:
            self.validate(held_out)
        self.save()

    def _require_finite(self, losses: dict[str, torch.Tensor]) -> None:
        if not all(torch.isfinite(value).all() for value in losses.values()):
            raise FloatingPointError(
                f"loss or gradient is not finite at step {self.step}: lower learning_rate, resume from the last state"
            )

    @torch.no_grad()
    def validate(self, held_out: Sequence[Batch]) -> dict[str, torch.Tensor]:
        """Losses and accuracies of the averaged weights on held-out batches, without noise; gives the losses."""
        self.learner.eval()
        losses: list[dict[str, torch.Tensor]] = []
        accuracies: list[dict[str, torch.Tensor]] = []
        # Compiled layers would be compiled anew for this mode, at more than it costs to run them as they are.
        with self.average.in_place(), self.autocast(), torch.compiler.set_stance("force_eager"):
            for batch in held_out:
                on_device = batch.to(self.device)
                outputs = self.learner(on_device, self.mels[on_device.mel_rows])
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
        losses: dict[str, torch.Tensor],
        accuracies: dict[str, torch.Tensor],
        **more: float,
    ) -> None:
        """One line for people, one JSON line for plots."""
        loss = {key: [round(x, 4) for x in value.reshape(-1).tolist()] for key, value in losses.items()}
        right = {key: [round(x, 4) for x in value.reshape(-1).tolist()] for key, value in accuracies.items()}
        groups, hits = loss["groups"], right["groups"]
        rest = [
            f"{key} {loss[key][0]:.3f}/{right[key][0]:.2f}" for key in ("phones", "speakers") if key in loss
        ]
        log.info(
            "%s step %d min %.2f | g0 %.3f/%.3f rest %.3f/%.3f | %s | %s%s",
            name,
            self.step,
            self.seconds / 60,
            groups[0],
            hits[0],
            sum(groups[1:]) / len(groups[1:]),
            sum(hits[1:]) / len(hits[1:]),
            " ".join(f"{value:.2f}" for value in groups[1:]),
            " ".join(rest),
            "".join(f" {key} {value:.4g}" for key, value in more.items()),
        )
        row = {"name": name, "step": self.step, "seconds": round(self.seconds, 1), "loss": loss, **more}
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, "accuracy": right}) + "\n")

    @torch.no_grad()
    def voice_means(self) -> torch.Tensor:
        """Every voice's mean speaker embedding ``[S, H]`` over training utterances: what presets are made of."""
        rows, starts = self.codes.rows("train"), self.codes.mel_starts
        rows = rows[np.diff(starts)[rows] > 0]
        means = []
        for voice in range(len(self.codes.names)):
            own = rows[self.codes.speakers[rows] == voice][:VOICE_UTTERANCES]
            if not len(own):
                means.append(torch.zeros(self.config.shape.talker.hidden, device=self.device))
                continue
            places = torch.arange(VOICE_FRAMES)[None]
            begins, ends = torch.as_tensor(starts[own]), torch.as_tensor(starts[own + 1])
            index = begins[:, None] + places % (ends - begins).clamp(min=1)[:, None]
            means.append(self.learner.embed_speakers(self.mels[index.to(self.device)], noise=False).mean(0))
        return torch.stack(means)

    def save(self) -> None:
        """Write the averaged weights, and the state to go on from."""
        self.learner.eval()
        with self.average.in_place():
            meta = {
                "step": self.step,
                "minutes": round(self.seconds / 60, 2),
                "codebook": self.codes.codebook,
            }
            save_weights(self.out / "weights", self.learner, self.voice_means(), self.codes.names, meta)
        self.learner.train()
        groups = {
            "learner": self.learner.state_dict(),
            "average": self.average.values,
            "optimizer": optimizer_tensors(self.optimizer),
        }
        save_state(self.out / STATE, groups, {"step": str(self.step), "seconds": str(self.seconds)})
        log.info("saved at step %d", self.step)

    def load(self, path: Path) -> None:
        """Go on from a state; ValueError when there is none."""
        groups, about = load_state(path)
        self.learner.load_state_dict(groups["learner"])
        self.average.load(groups["average"])
        load_optimizer(self.optimizer, groups["optimizer"])
        self.step, self.seconds = int(about["step"]), float(about["seconds"])
        log.info("resumed at step %d, minute %.2f", self.step, self.seconds / 60)

"""The decoder's training step by step, and the state to resume it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch

from ..average import Average
from ..codec.discriminators import Discriminators
from ..periodicity import Pitch, periodicity
from ..replay import Replayer
from ..storage import load_optimizer, load_state, optimizer_tensors, save_state
from .batches import Batch, places_of, sample_batch
from .checkpoint import Weights
from .config import Config
from .network import WindowDecoder
from .stretches import Stretches
from .update import Updater

OPPONENT = "discriminators."


class Trainer:
    """Decoder, discriminators, their updates, the average of the weights, and the current step.

    Args:
        config: of the training.
        network: on the training device, with the weights to start from.
        speech: on the training device.
        fast: run losses concurrently (CUDA).
        capture: capture updates and replay them (CUDA).
    """

    def __init__(
        self,
        config: Config,
        network: WindowDecoder,
        speech: Stretches,
        fast: bool = False,
        capture: bool = False,
    ):
        self.config, self.network, self.speech = config, network, speech
        self.device = speech.audio.device
        self.places = places_of(speech.starts, config.windows.frames)
        torch.manual_seed(config.training.seed)
        self.discriminators = Discriminators(config.adversarial).to(self.device)
        streams = len(self.discriminators.members) if fast else 0
        self.updater = Updater(config, network, self.discriminators, streams)
        self.replayer = Replayer() if capture else None
        self.average = Average(dict(network.learnt()), config.training.average)
        self.step = 0
        self.taught_from = 0  # step from which new discriminators learn alone
        self.decayed = 0.0  # completed share of the learning rate's final decay

    @property
    def alone(self) -> bool:
        """Whether only the discriminators learn in the next step."""
        return self.step < self.taught_from + self.config.training.alone_steps

    def rate(self) -> float:
        """Return the learning rates' factor: a warm-up once both learn, a constant, a last cosine to ``final_rate``."""
        options = self.config.training
        first = self.taught_from + options.alone_steps
        rise = 1.0 if self.alone else min(1.0, (self.step - first + 1) / options.warmup_steps)
        fall = 0.5 * (1 + math.cos(math.pi * min(1.0, self.decayed)))
        return rise * (options.final_rate + (1 - options.final_rate) * fall)

    def train_step(self) -> Mapping[str, torch.Tensor]:
        """Train on the step's batch; return its unweighted losses on the device, valid until the next step."""
        plan, alone = self.config.training, self.alone
        batch = sample_batch(self.speech, self.places, self.config.windows, plan.seed, self.step)
        rate = self.rate()
        self.updater.set_rates(plan.learning_rate * rate, self.config.adversarial.learning_rate * rate)
        losses = self._update(batch, alone)
        if not alone:
            self.average.update(self.step - self.taught_from - plan.alone_steps)
        self.step += 1
        return losses

    def _update(self, batch: Batch, alone: bool) -> Mapping[str, torch.Tensor]:
        def update(*tensors: torch.Tensor) -> dict[str, torch.Tensor]:
            return self.updater.update(Batch(*tensors), alone)

        return update(*batch) if self.replayer is None else self.replayer.run(alone, update, batch)

    @torch.no_grad()
    def validate(self, codes: torch.Tensor, wave: torch.Tensor, pitch: Pitch) -> dict[str, float]:
        """Return the averaged weights' spectral losses and periodicity on held-out crops, decoded whole.

        Args:
            codes: ``[B, frames, 16]``.
            wave: their recordings, float32 ``[B, frames * 1920]``.
            pitch: of the recordings.
        """
        # These shapes are met too rarely to try every kernel on them.
        kernels = torch.backends.cudnn.flags(enabled=True, benchmark=False)
        with kernels, self.average.in_place(), self.updater.autocast():
            made = self.network.whole(codes)
        found = {name: float(value) for name, value in self.updater.spectral(made, wave).items()}
        return {**found, **periodicity(made, pitch)}

    def save(self, path: Path) -> None:
        """Write everything that ``resume`` needs."""
        groups: dict[str, Mapping[str, torch.Tensor]] = {
            "decoder": self.network.learnt(),
            "average": self.average.values,
            "discriminators": self.discriminators.state_dict(),
            "optimizer": optimizer_tensors(self.updater.optimizer),
            "opponent": optimizer_tensors(self.updater.opponent),
            "balance": self.updater.balancer.sizes,
        }
        about = {"step": self.step, "taught_from": self.taught_from, "decayed": self.decayed}
        save_state(path, groups, {name: json.dumps(value) for name, value in about.items()})

    def resume(self, path: Path) -> None:
        """Continue exactly from a saved state."""
        groups, about = load_state(path)
        self.network.load(groups["decoder"])
        self.average.load(groups["average"])
        self.discriminators.load_state_dict(groups["discriminators"])
        load_optimizer(self.updater.optimizer, groups.get("optimizer", {}))
        load_optimizer(self.updater.opponent, groups.get("opponent", {}))
        self.updater.balancer.sizes = {
            name: value.to(self.device) for name, value in groups.get("balance", {}).items()
        }
        self.step, self.taught_from = json.loads(about["step"]), json.loads(about["taught_from"])
        self.decayed = json.loads(about["decayed"])

    def weights(self) -> Weights:
        """Return the averaged weights and the discriminators."""
        opponents = {f"{OPPONENT}{name}": value for name, value in self.discriminators.state_dict().items()}
        return Weights(self.config, self.step, {**self.average.values, **opponents})

    def start_from(self, weights: Weights) -> None:
        """Go on from the weights of an earlier lease; discriminators of another config are taught again.

        The weights are bf16 and come without optimizer state, so the learning rate rises again, and the discriminators
        learn alone first.
        """
        self.network.load(weights.tensors)
        self.average.load(self.network.learnt())
        opponents = {
            name.removeprefix(OPPONENT): value
            for name, value in weights.tensors.items()
            if name.startswith(OPPONENT)
        }
        if weights.config.adversarial == self.config.adversarial:
            self.discriminators.load_state_dict(opponents)
        self.step = self.taught_from = weights.step

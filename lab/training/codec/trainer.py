"""The codec's training step by step, and the state to resume it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from ..average import Average
from ..parallel import ALONE, World
from ..replay import Replayer
from ..storage import load_optimizer, load_state, optimizer_tensors, save_state
from .checkpoint import Weights, put_weights
from .config import Config
from .data import Batch, Speech, sample_batch
from .discriminators import Discriminators
from .listener import Listener, voice_loss
from .model import Codec
from .quantizer import ResidualQuantiser
from .update import Networks, Updater

KMEANS_STEP = 10_000_000  # step numbers from here on are batches for k-means, which no training step uses
RESTART_WARMUP = 100


class Trainer:
    """Codec, discriminators, listener, their updates, the average of the weights, and the current step.

    Args:
        config: of the training.
        speech: on the training device.
        fast: fuse SnakeBeta, use channels-last convolutions, and run losses concurrently (CUDA).
        world: the processes that train together.
        capture: capture updates and replay them (CUDA).
    """

    def __init__(
        self,
        config: Config,
        speech: Speech,
        fast: bool = False,
        world: World = ALONE,
        capture: bool = False,
    ):
        self.config, self.speech, self.world = config, speech, world
        self.device = speech.audio.device
        torch.manual_seed(config.training.seed)
        self.codec = Codec(config, len(speech.symbols), fast).to(self.device).train()
        self.discriminators = Discriminators(config.adversarial).to(self.device)
        self.listener = Listener(speech.voice_count).to(self.device) if config.adversarial.listens else None
        self.codec.quantiser.world = world
        streams = len(self.discriminators.members) if fast else 0
        networks = Networks(self.codec, self.discriminators, self.listener)
        self.updater = Updater(config, networks, world, streams)
        self.replayer = Replayer() if capture else None
        self.average = Average(self.codec.averaged(), config.training.average)
        self.step = 0
        self.warmup_from = 0
        self.time_share = 0.0  # of the training's total minutes, if they are limited

    def progress(self) -> float:
        """Return the completed share of the training, by steps or by time, whichever is larger."""
        return min(1.0, max(self.step / self.config.training.total_steps, self.time_share))

    def rate(self) -> float:
        """Return the learning rates' factor: a warm-up, then a cosine to ``final_rate`` at the last step or minute."""
        options = self.config.training
        rise = min(1.0, (self.step - self.warmup_from + 1) / options.warmup_steps)
        return rise * (
            options.final_rate + (1 - options.final_rate) * 0.5 * (1 + math.cos(math.pi * self.progress()))
        )

    @property
    def adversarial(self) -> bool:
        """Whether the next step uses the discriminators."""
        return self.config.adversarial.enabled and self.step >= self.config.adversarial.start_step

    @property
    def quantising(self) -> bool:
        """Whether the next step quantises."""
        return self.step >= self.config.quantiser.start_step

    def train_step(self) -> Mapping[str, torch.Tensor]:
        """Train on the step's batch; return its unweighted losses on the device, valid until the next step."""
        options = self.config.quantiser
        if self.step == options.start_step and not self.config.training.decoder_only:
            self.fill_codebooks()
        batch = sample_batch(self.speech, self.config.training, options.dropout, self.step, self.world.rank)
        rate = self.rate()
        self.updater.set_rates(
            self.config.training.learning_rate * rate, self.config.adversarial.learning_rate * rate
        )
        losses = self._update(batch, self.quantising, self.adversarial)
        if self._restarts():
            self._teach(lambda quantiser: quantiser.restart(self.step))
        self.average.update(self.step)
        self.step += 1
        return losses

    def _restarts(self) -> bool:
        """Whether to replace dead codes after this step's update."""
        options = self.config.quantiser
        due = self.quantising and self.step % options.restart_every == 0
        return due and self.progress() < options.restart_until and not self.config.training.decoder_only

    def _update(self, batch: Batch, quantise: bool, adversarial: bool) -> Mapping[str, torch.Tensor]:
        def update(*tensors: torch.Tensor) -> dict[str, torch.Tensor]:
            return self.updater.update(Batch(*tensors), quantise, adversarial)

        if self.replayer is None:
            return update(*batch.tensors())
        return self.replayer.run((quantise, adversarial), update, batch.tensors())

    @torch.no_grad()
    def _teach(self, change: Callable[[ResidualQuantiser], None]) -> None:
        """Let process 0 change the codebooks, and broadcast them to all."""
        if self.world.first:
            change(self.codec.quantiser)
        self.world.broadcast(self.codec.quantiser.learnt())

    def fill_codebooks(self) -> None:
        """Run k-means on embeddings of batches that no step uses."""
        self._teach(self._fill)
        self.average.values["codes"].copy_(self.codec.quantiser.vectors)

    def _fill(self, quantiser: ResidualQuantiser) -> None:
        first: list[torch.Tensor] = []
        rest: list[torch.Tensor] = []
        frames, step = 0, KMEANS_STEP
        while frames < self.config.quantiser.kmeans_frames:
            batch = sample_batch(self.speech, self.config.training, 0.0, step)
            with self.updater.autocast():
                embedded = self.codec.embed(batch.wave)
            for rows, part in zip((first, rest), embedded, strict=True):
                rows.append(part.transpose(1, 2).flatten(0, 1))
            frames, step = frames + len(first[-1]), step + 1
        quantiser.fill(torch.cat(first), torch.cat(rest), self.config.training.seed)

    @torch.no_grad()
    def validate(self, batch: Batch) -> dict[str, float]:
        """Return the averaged weights' losses on a held-out batch, and the mel loss of the first 1, 4 and 8 groups."""
        self.codec.eval()
        quantise = self.quantising
        with self.average.in_place():
            coded = self.codec(batch.wave, None, quantise)
            found = {name: float(value) for name, value in self.updater.losses(coded, batch).items()}
            if self.listener is not None:
                found["voice"] = float(voice_loss(self.listener(coded.wave), self.listener(batch.wave)))
            for count in (1, 4, 8) if quantise else ():
                groups = torch.full((len(batch.wave),), count, device=self.device)
                made = self.codec(batch.wave, groups).wave
                found[f"mel of {count}"] = float(self.updater.spectral(made, batch.wave)["mel"])
        self.codec.train()
        return found

    def share(self) -> None:
        """Broadcast process 0's weights to all, before the first step."""
        parts = (
            self.codec.state_dict(),
            self.discriminators.state_dict(),
            self._listener_state(),
            self.average.values,
        )
        self.world.broadcast([value for part in parts for value in part.values()])

    def require_same(self) -> None:
        """Compare the processes' weights; raises RuntimeError naming one that differs. Waits for the device."""
        codebooks = {"codes": self.codec.quantiser.vectors}
        listener = {f"listener.{name}": value for name, value in self._listener_state().items()}
        weights = {**self.codec.trained(), **self.discriminators.state_dict(), **listener, **codebooks}
        self.world.require_same(weights)

    def _listener_state(self) -> dict[str, torch.Tensor]:
        """Return the listener's weights, if it exists."""
        return {} if self.listener is None else self.listener.state_dict()

    def save(self, path: Path) -> None:
        """Write everything that ``resume`` needs."""
        groups = {
            "codec": self.codec.state_dict(),
            "average": self.average.values,
            "discriminators": self.discriminators.state_dict(),
            "listener": self._listener_state(),
            "optimizer": optimizer_tensors(self.updater.optimizer),
            "opponent": optimizer_tensors(self.updater.opponent),
            "balance": self.updater.balancer.sizes,
        }
        about = {
            "step": self.step,
            "warmup_from": self.warmup_from,
            "time_share": self.time_share,
            "symbols": self.speech.symbols,
        }
        save_state(path, groups, {name: json.dumps(value) for name, value in about.items()})

    def resume(self, path: Path) -> None:
        """Continue exactly from a saved state."""
        groups, about = load_state(path)
        self._check_symbols(tuple(json.loads(about["symbols"])))
        self.codec.load_state_dict(groups["codec"])
        self.average.load(groups["average"])
        self.discriminators.load_state_dict(groups["discriminators"])
        if self.listener is not None:
            self.listener.load_state_dict(groups["listener"])
        load_optimizer(self.updater.optimizer, groups["optimizer"])
        load_optimizer(self.updater.opponent, groups.get("opponent", {}))
        self.updater.balancer.sizes = {
            name: value.to(self.device) for name, value in groups["balance"].items()
        }
        self.step, self.warmup_from = json.loads(about["step"]), json.loads(about["warmup_from"])
        self.time_share = json.loads(about["time_share"])

    def weights(self) -> Weights:
        """Return the averaged weights and the discriminators; a listener is learnt again within some hundred steps."""
        opponents = {
            f"discriminators.{name}": value for name, value in self.discriminators.state_dict().items()
        }
        tensors = {**self.average.values, **opponents}
        return Weights(self.config, self.speech.symbols, self.step, tensors)

    def restart(self, weights: Weights) -> None:
        """Continue from exported weights: they are bf16 and without optimizer state, so the learning rate warms up."""
        self._check_symbols(weights.symbols)
        put_weights(self.codec, weights.tensors)
        self.average.load(self.codec.averaged())
        prefix = "discriminators."
        opponents = {n.removeprefix(prefix): v for n, v in weights.tensors.items() if n.startswith(prefix)}
        self.discriminators.load_state_dict(opponents)
        self.step = weights.step
        self.warmup_from = max(0, weights.step - self.config.training.warmup_steps + RESTART_WARMUP)

    def start_from(self, weights: Weights) -> None:
        """Start a new training from the weights of another."""
        self.restart(weights)
        self.step = self.warmup_from = 0

    def _check_symbols(self, symbols: tuple[str, ...]) -> None:
        if symbols != self.speech.symbols:
            raise ValueError(
                f"the checkpoint has {len(symbols)} phone symbols, this corpus {len(self.speech.symbols)}: "
                "resume with the corpus that it was trained on"
            )

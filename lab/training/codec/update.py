"""One update of codec and discriminators on one batch.

Nothing in it waits for the device, so it can be captured in a CUDA graph. A step on a few seconds of speech needs that:
its kernels are shorter than their launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..branches import Branches
from ..parallel import ALONE, World
from .balance import Balancer
from .config import Config
from .data import Batch, segments_of
from .discriminators import Discriminators
from .listener import Listener, speaker_loss, voice_loss
from .losses import SpectralLoss, phone_accuracy, phone_loss
from .model import Codec, Coded

BETAS = (0.8, 0.99)
OUTPUT_RATE = 0.05  # learning rate of the output layer, as a share of the others'
WAVEFORM = ("mel", "log_magnitude", "magnitude")  # losses at the waveform
INNER = ("commitment", "scale", "phones")

Losses = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Networks:
    """The networks to update, on one device; without a listener voices are not compared."""

    codec: Codec
    discriminators: Discriminators
    listener: Listener | None = None


class Updater:
    """The networks' losses and optimizers.

    Args:
        config: of the training.
        networks: codec, discriminators and listener.
        world: the processes whose batches form an update. Gradients, sizes of gradients and the codebooks' rows are
            averaged; normalisers within a loss (a batch's energies) are per process.
        streams: number of CUDA streams for discriminators and for spectra of several resolutions.
    """

    def __init__(self, config: Config, networks: Networks, world: World = ALONE, streams: int = 0):
        codec, discriminators, listener = networks.codec, networks.discriminators, networks.listener
        self.config, self.codec, self.discriminators, self.world = config, codec, discriminators, world
        self.listener = listener
        self.device = next(codec.parameters()).device
        self.branches = Branches(self.device, streams)
        self.spectral = SpectralLoss(config.losses).to(self.device)
        names = ("spectral", "fooling", "features", "voice")
        shares = dict(zip(names, config.adversarial.shares, strict=True))
        if listener is None:
            del shares["voice"]
        self.balancer = Balancer(shares, "spectral", world=world)
        output = codec.output_layer()
        others = [value for value in codec.trained().values() if all(value is not last for last in output)]
        # The log spectrum is very sensitive to the few small weights of the output layer: they move less, and their
        # gradient is clipped separately.
        self.parts = (others, output)
        self.optimizer = self._adam(self.parts, (1.0, OUTPUT_RATE))
        self.opponents = [*discriminators.parameters(), *(listener.parameters() if listener else ())]
        self.opponent = self._adam((self.opponents,), (1.0,))

    def _adam(self, parts: Sequence[list[torch.nn.Parameter]], shares: Sequence[float]) -> torch.optim.AdamW:
        cuda = self.device.type == "cuda"
        groups = [
            # A captured update can only see a new learning rate in a tensor.
            {"params": part, "share": share, "lr": torch.zeros((), device=self.device) if cuda else 0.0}
            for part, share in zip(parts, shares, strict=True)
        ]
        decay = self.config.training.weight_decay
        return torch.optim.AdamW(groups, betas=BETAS, weight_decay=decay, fused=cuda, capturable=cuda)

    def set_rates(self, codec: float, discriminators: float) -> None:
        """Set the learning rates of the next update."""
        for optimizer, rate in ((self.optimizer, codec), (self.opponent, discriminators)):
            set_rate(optimizer, rate)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def update(self, batch: Batch, quantise: bool, adversarial: bool) -> Losses:
        """Learn from a batch; return its unweighted losses."""
        with self.autocast():
            if batch.codes is None:
                coded = self.codec(batch.wave, batch.groups, quantise)
            else:
                coded = self.codec.decode_codes(batch.codes, batch.groups)
        losses = self.losses(coded, batch)
        heard = {"spectral": self._weighted(losses, WAVEFORM)}
        for optimizer in (self.optimizer, self.opponent):
            optimizer.zero_grad(set_to_none=True)
        if adversarial:
            losses |= self._oppose(coded.wave, batch)
            heard |= {name: losses[name] for name in ("fooling", "features")}
        if self.listener is not None:
            losses |= self._listen(self.listener, coded.wave if adversarial else None, batch)
            heard |= {"voice": losses["voice"]} if adversarial else {}
        back = self.balancer.gradient(heard, coded.wave)
        if self.config.training.decoder_only:
            coded.wave.backward(back)
        else:
            torch.autograd.backward([self._weighted(losses, INNER), coded.wave], [None, back])
        everything = [*self.parts[0], *self.parts[1], *self.opponents]
        self.world.average([value.grad for value in everything if value.grad is not None])
        norms = [torch.nn.utils.clip_grad_norm_(part, self.config.training.clip) for part in self.parts]
        losses["gradient"] = norms[0]
        self.optimizer.step()
        if adversarial or self.listener is not None:
            self.opponent.step()
        return {name: value.detach() for name, value in losses.items()}

    def losses(self, coded: Coded, batch: Batch) -> Losses:
        """Return every loss without its weight, and the phones' accuracy."""
        return {
            **self.spectral(coded.wave, batch.wave, self.branches),
            "commitment": coded.quantised.commitment,
            "scale": coded.quantised.scale,
            "phones": phone_loss(coded.phones, batch.phones),
            "phones right": phone_accuracy(coded.phones, batch.phones),
        }

    def _weighted(self, losses: Losses, names: Sequence[str]) -> torch.Tensor:
        weights = self.config.losses
        return torch.stack([getattr(weights, name) * losses[name] for name in names]).sum()

    def _oppose(self, made: torch.Tensor, batch: Batch) -> Losses:
        """Set the discriminators' gradients on segments of some crops, and return their losses on those.

        One pass over recordings and one over decoded speech serve all three losses: the codec's losses come from the
        discriminators before they learn from this batch, not after.
        """
        options = self.config.adversarial
        count = max(1, round(options.judged * len(made)))
        wanted, made = (
            segments_of(wave[:count], batch.segments[:count], options.segment) for wave in (batch.wave, made)
        )
        with self.autocast():
            opinion = self.discriminators(wanted, made, self.branches)
        _set_gradients(opinion.telling, list(self.discriminators.parameters()))
        return opinion._asdict()

    def _listen(self, listener: Listener, made: torch.Tensor | None, batch: Batch) -> Losses:
        """Set the listener's gradients on recordings, and return the decoded voices' distance from those."""
        with self.autocast():
            wanted = listener(batch.wave)
        own = speaker_loss(wanted, batch.voices)
        _set_gradients(own, list(listener.parameters()))
        losses = {"telling voices": own}
        if made is not None:
            with self.autocast():
                losses["voice"] = voice_loss(listener(made), wanted)
        return losses


def _set_gradients(loss: torch.Tensor, parameters: Sequence[torch.nn.Parameter]) -> None:
    """Set the parameters' gradients for a loss whose graph other losses still need."""
    found = torch.autograd.grad(loss, parameters, retain_graph=True)
    for parameter, gradient in zip(parameters, found, strict=True):
        # Same memory layout as the parameter, like backward(): the fused optimizer accepts no other.
        parameter.grad = torch.empty_like(parameter).copy_(gradient)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of each group's next update: its share of ``rate``."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate * group["share"])
        else:
            group["lr"] = rate * group["share"]

"""One update of decoder and discriminators on one batch of windows; nothing in it waits for the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..branches import Branches
from ..codec.balance import Balancer
from ..codec.discriminators import Discriminators
from ..codec.losses import SpectralLoss
from ..codec.update import BETAS, OUTPUT_RATE, WAVEFORM, set_rate
from .batches import Batch, judged_part
from .config import Config
from .network import WindowDecoder

Losses = dict[str, torch.Tensor]


class Updater:
    """Losses and optimizers of a decoder and its discriminators, on one device.

    Args:
        config: of the training.
        network, discriminators: that learn.
        streams: number of CUDA streams for discriminators and for spectra of several resolutions.
    """

    def __init__(
        self, config: Config, network: WindowDecoder, discriminators: Discriminators, streams: int = 0
    ):
        self.config, self.network, self.discriminators = config, network, discriminators
        self.device = next(discriminators.parameters()).device
        self.branches = Branches(self.device, streams)
        self.spectral = SpectralLoss(config.losses).to(self.device)
        names = ("spectral", "fooling", "features")
        self.balancer = Balancer(
            dict(zip(names, config.adversarial.shares[: len(names)], strict=True)), "spectral"
        )
        decayed, plain, output = network.parts()
        decay = config.training.weight_decay
        # The log spectrum is very sensitive to the few small weights of the output layer: they move less.
        self.optimizer = self._adam([(decayed, 1.0, decay), (plain, 1.0, 0.0), (output, OUTPUT_RATE, 0.0)])
        self.opponent = self._adam([(list(discriminators.parameters()), 1.0, decay)])
        self.parts = ([*decayed, *plain], output)

    def _adam(self, parts: Sequence[tuple[list[torch.nn.Parameter], float, float]]) -> torch.optim.AdamW:
        cuda = self.device.type == "cuda"
        groups = [
            # A captured update can only see a new learning rate in a tensor.
            {
                "params": part,
                "share": share,
                "weight_decay": decay,
                "lr": torch.zeros((), device=self.device) if cuda else 0.0,
            }
            for part, share, decay in parts
        ]
        return torch.optim.AdamW(groups, betas=BETAS, fused=cuda, capturable=cuda)

    def set_rates(self, decoder: float, discriminators: float) -> None:
        """Set the learning rates of the next update."""
        for optimizer, rate in ((self.optimizer, decoder), (self.opponent, discriminators)):
            set_rate(optimizer, rate)

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def update(self, batch: Batch, alone: bool) -> Losses:
        """Learn from a batch; return its unweighted losses. ``alone``: only the discriminators learn."""
        for optimizer in (self.optimizer, self.opponent):
            optimizer.zero_grad(set_to_none=True)
        losses = self._discriminators_alone(batch) if alone else self._both(batch)
        return {name: value.detach() for name, value in losses.items()}

    def _decode(self, batch: Batch) -> torch.Tensor:
        with self.autocast():
            made = self.network(batch.codes, batch.offsets, batch.groups)
        return judged_part(made, batch.offsets, self.config.windows)

    def _discriminators_alone(self, batch: Batch) -> Losses:
        with torch.no_grad():
            made = self._decode(batch)
        with self.autocast():
            opinion = self.discriminators(batch.wave, made, self.branches)
        self._teach_discriminators(opinion.telling)
        self.opponent.step()
        return opinion._asdict()

    def _both(self, batch: Batch) -> Losses:
        made = self._decode(batch)
        losses = self.spectral(made, batch.wave, self.branches)
        with self.autocast():
            opinion = self.discriminators(batch.wave, made, self.branches)
        self._teach_discriminators(opinion.telling)
        weights = self.config.losses
        spectral = torch.stack([getattr(weights, name) * losses[name] for name in WAVEFORM]).sum()
        heard = {"spectral": spectral, "fooling": opinion.fooling, "features": opinion.features}
        made.backward(self.balancer.gradient(heard, made))
        norms = [torch.nn.utils.clip_grad_norm_(part, self.config.training.clip) for part in self.parts]
        self.optimizer.step()
        self.opponent.step()
        return {**losses, **opinion._asdict(), "gradient": norms[0]}

    def _teach_discriminators(self, telling: torch.Tensor) -> None:
        """Set the discriminators' gradients for a loss whose graph the decoder's losses may still need."""
        parameters = list(self.discriminators.parameters())
        found = torch.autograd.grad(telling, parameters, retain_graph=True)
        for parameter, gradient in zip(parameters, found, strict=True):
            # Same memory layout as the parameter, like backward(): the fused optimizer accepts no other.
            parameter.grad = torch.empty_like(parameter).copy_(gradient)

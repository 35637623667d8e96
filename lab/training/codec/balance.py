"""Balance losses by their gradients at the decoded waveform."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..parallel import ALONE, World

TINY = 1e-12


class Balancer:
    """Weights losses by their gradients at the waveform, independently of their scales (EnCodec, section 3.4).

    Args:
        shares: name of a loss -> its share of the gradient, relative to the sum of the shares.
        reference: the loss whose gradient size determines the size of the mix.
        decay: of the moving averages of the gradients' sizes.
        world: the processes that share the sizes.
    """

    def __init__(
        self, shares: Mapping[str, float], reference: str, decay: float = 0.99, world: World = ALONE
    ):
        if reference not in shares or min(shares.values()) <= 0:
            raise ValueError(f"shares {dict(shares)}: must be above 0 and include {reference!r}")
        self.shares, self.reference, self.decay, self.world = dict(shares), reference, decay, world
        self.sizes: dict[str, torch.Tensor] = {}

    def gradient(self, losses: Mapping[str, torch.Tensor], wave: torch.Tensor) -> torch.Tensor:
        """Return the gradient to propagate back from ``wave`` ``[B, T]`` for the given losses."""
        grads = {name: torch.autograd.grad(loss, wave, retain_graph=True)[0] for name, loss in losses.items()}
        found = torch.stack([grad.norm(dim=1).mean() for grad in grads.values()])
        self.world.average([found])
        for name, size in zip(grads, found.unbind(), strict=True):
            if name in self.sizes:
                self.sizes[name].lerp_(size, 1 - self.decay)  # in place: the update may be captured
            else:
                self.sizes[name] = size.clone()
        whole = sum(self.shares[name] for name in grads)
        scale = self.sizes[self.reference] / whole
        parts = [self.shares[name] * scale / (self.sizes[name] + TINY) * grad for name, grad in grads.items()]
        return torch.stack(parts).sum(0)

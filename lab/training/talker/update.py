"""One update on one batch, in two halves: gradients, then (after averaging over processes) the optimizer step.

Neither half waits for the device, so both can be captured in CUDA graphs.
"""

from __future__ import annotations

from typing import Any

import torch

from .batch import Batch
from .config import Config
from .objective import Learner, Outputs, total_loss

BETAS = (0.9, 0.98)

Losses = dict[str, torch.Tensor]


class Updater:
    """Computes the losses' gradients into one tensor, which the optimizer reads.

    Args:
        config: of the training.
        learner: on the training device; bf16 on CUDA, otherwise float32.
        mels: the references, packed ``[frames, 128]``, on the same device.
    """

    def __init__(self, config: Config, learner: Learner, mels: torch.Tensor):
        self.config, self.learner, self.mels = config, learner, mels
        self.device = mels.device
        self.weights = [weight for weight in learner.parameters() if weight.requires_grad]
        self.gradient = torch.zeros(sum(weight.numel() for weight in self.weights), device=self.device)
        parts = self.gradient.split([weight.numel() for weight in self.weights])
        self.parts = [part.view_as(weight) for part, weight in zip(parts, self.weights, strict=True)]
        for weight, part in zip(self.weights, self.parts, strict=True):
            weight.grad = part
        self.optimizer = self._optimizer()

    def _optimizer(self) -> torch.optim.Optimizer:
        """Return AdamW, without weight decay for norms and biases."""
        cuda = self.device.type == "cuda"
        # A captured update can only see a new learning rate in a tensor.
        rate = torch.zeros((), device=self.device) if cuda else 0.0
        groups: list[dict[str, Any]] = [
            {
                "params": [weight for weight in self.weights if weight.dim() > 1],
                "weight_decay": self.config.training.weight_decay,
            },
            {"params": [weight for weight in self.weights if weight.dim() <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=rate, betas=BETAS, fused=cuda, capturable=cuda)

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of the next update."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda")

    def outputs(self, batch: Batch) -> Outputs:
        """Return the learner's outputs for a batch; call within ``autocast``."""
        fields = batch.fields()
        rows = fields.mel_rows(self.config.mix.reference_frames[1])
        return self.learner(fields, self.mels[rows])

    def learn(self, batch: Batch, shares: torch.Tensor) -> Losses:
        """Compute the gradients into ``gradient``; return the unweighted losses. ``shares`` as in ``total_loss``."""
        options = self.config.training
        with self.autocast():
            losses = self.outputs(batch).losses(options.label_smoothing)
            total = total_loss(losses, options, shares)
        torch._foreach_copy_(self.parts, list(torch.autograd.grad(total, self.weights)))
        return {name: value.detach() for name, value in losses.items()}

    def apply(self) -> Losses:
        """Clip the gradient and run an optimizer step; return the gradient's norm."""
        norm = torch.linalg.vector_norm(self.gradient)
        self.gradient.mul_((self.config.training.clip / (norm + 1e-6)).clamp(max=1.0))
        self.optimizer.step()
        return {"gradient": norm}

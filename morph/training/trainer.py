"""Train a LoRA on the linear layers of a talker, with peft."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..checkpoint.adapter_file import read_adapter
from ..model.model import Model
from .examples import Batch, Example, stack
from .objective import losses

log = logging.getLogger(__name__)

LINEAR = r"layers\.\d+\.(self_attn\.[qkvo]|mlp\.(gate|up|down))_proj"
LAYERS = {"talker": rf"talker\.model\.{LINEAR}", "all": rf"talker\.(code_predictor\.)?model\.{LINEAR}"}
WARM_UP = 0.05  # share of the steps in which the rate rises; it falls to 0 as a cosine afterwards
LARGEST_GRADIENT = 1.0


@dataclass(frozen=True)
class Training:
    """How to train.

    Args:
        rank: of the adapter.
        alpha: the adapter is scaled by alpha over rank.
        layers: one of LAYERS: "all" are the talker's and the code predictor's.
        steps: updates.
        rate: the highest learning rate (AdamW).
        batch: lines in a step.
        frames: frames in a step that the code predictor learns; it runs over 16 positions for each.
        check: steps between two losses of the held-out lines.
        seed: of the adapter's first weights and of the order of the lines.

    Raises:
        ValueError: for an invalid value.
    """

    rank: int = 16
    alpha: int = 16
    layers: str = "talker"
    steps: int = 400
    rate: float = 1e-3
    batch: int = 8
    frames: int = 128
    check: int = 25
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rank", "steps", "batch", "frames", "check"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: choose 1 or more")
        for name in ("alpha", "rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}: choose a number above 0")
        if self.layers not in LAYERS:
            raise ValueError(f"layers is {self.layers!r}: choose one of {', '.join(LAYERS)}")

    def rate_at(self, step: int) -> float:
        """Return a step's share of the highest rate."""
        rising = max(1, round(WARM_UP * self.steps))
        if step < rising:
            return (step + 1) / rising
        return 0.5 + 0.5 * math.cos(math.pi * (step - rising) / max(1, self.steps - rising))


class Trainer:
    """Trains an adapter on a model, which cannot speak until ``end``.

    Args:
        model: loaded with full weights.
        options: how.
    """

    def __init__(self, model: Model, options: Training):
        try:
            from peft import LoraConfig, get_peft_model
        except ImportError as error:
            raise ImportError(f"peft cannot be imported ({error}): pip install peft") from error
        torch.manual_seed(options.seed)
        config = LoraConfig(
            r=options.rank, lora_alpha=options.alpha, target_modules=LAYERS[options.layers], bias="none"
        )
        self.model, self.options = model, options
        self.adapted: Any = get_peft_model(model.network, config)
        self.weights = {name: one for name, one in self.adapted.named_parameters() if one.requires_grad}
        self.optimizer = torch.optim.AdamW(self.weights.values(), lr=options.rate, weight_decay=0.0)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, options.rate_at)

    def train(self, lines: Sequence[Example], held_out: Sequence[Example]) -> dict[str, Any]:
        """Train, and keep the weights with the lowest loss of the held-out lines, or the last ones without such lines.

        Ctrl+C ends it early, in the same way. Returns the step whose weights are kept, and the held-out lines' losses
        of group 0 and of groups 1-15 before the training and with these weights; none without such lines.
        """
        before = best = self._check(0, held_out)
        step, kept_at, kept = 0, 0, self._copy()
        try:
            for step, batch in zip(range(1, self.options.steps + 1), self._batches(lines), strict=False):
                found = self._update(batch, step)
                if step % self.options.check and step < self.options.steps:
                    continue
                log.info("step %d of %d: group 0 %.3f, groups 1-15 %.3f", step, self.options.steps, *found)
                now = self._check(step, held_out)
                if sum(now) <= sum(best):
                    best, kept_at, kept = now, step, self._copy()
        except KeyboardInterrupt:
            log.warning("stopped after %d steps", step)
            if not held_out:
                kept_at, kept = step, self._copy()
        self._restore(kept)
        log.info("the weights of step %d are kept", kept_at)
        return {"kept_step": kept_at, "losses_before": before, "losses": best}

    def _batches(self, lines: Sequence[Example]) -> Iterator[Batch]:
        """Yield batches endlessly; all lines are used once before any is repeated."""
        chance, order = random.Random(self.options.seed), list[int]()
        while True:
            while len(order) < self.options.batch:
                order += chance.sample(range(len(lines)), len(lines))
            chosen, order = order[: self.options.batch], order[self.options.batch :]
            yield self._stack([lines[index] for index in chosen])

    def _stack(self, examples: Sequence[Example]) -> Batch:
        return stack(examples, self.model.config.talker_config.codec_eos_token_id, self.model.device)

    def _update(self, batch: Batch, step: int) -> tuple[float, float]:
        chance = torch.Generator().manual_seed(self.options.seed + step)
        frames = torch.randperm(len(batch.codes), generator=chance)[: self.options.frames]
        first, rest = losses(self.model.talker, batch, frames.to(batch.codes.device))
        self.optimizer.zero_grad()
        (first + rest).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.weights.values(), LARGEST_GRADIENT)
        if not bool(norm.isfinite()):
            raise ValueError(f"step {step}'s gradient is not finite: choose a lower rate, or precision fp32")
        self.optimizer.step()
        self.schedule.step()
        return float(first.detach()), float(rest.detach())

    @torch.no_grad()
    def _check(self, step: int, held_out: Sequence[Example]) -> list[float]:
        """Return the losses of the held-out lines, each line counted alike; none if there are none."""
        if not held_out:
            return []
        found = [torch.stack(losses(self.model.talker, self._stack([one]))) for one in held_out]
        means = [round(value, 4) for value in torch.stack(found).mean(dim=0).tolist()]
        log.info("held-out lines after %d steps: group 0 %.3f, groups 1-15 %.3f", step, *means)
        return means

    def _copy(self) -> dict[str, torch.Tensor]:
        return {name: one.detach().clone() for name, one in self.weights.items()}

    @torch.no_grad()
    def _restore(self, kept: dict[str, torch.Tensor]) -> None:
        for name, one in kept.items():
            self.weights[name].copy_(one)

    def save(self, folder: Path) -> None:
        """Write the adapter as peft does, and read it as the pack does; ValueError if that fails."""
        self.adapted.active_peft_config.base_model_name_or_path = self.model.name  # instead of its path here
        self.adapted.save_pretrained(str(folder), save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)  # peft's model card, without content
        adapter = read_adapter(folder)
        size = sum(part.up.numel() + part.down.numel() for part in adapter.parts.values())
        log.info("%s: %d layers, %.2f M numbers", folder, len(adapter.parts), size / 1e6)

    def end(self) -> None:
        """Remove the adapter from the model."""
        self.adapted.unload()

"""Train a LoRA on the linear layers of a talker, beside a model: the layers, the losses, the loop, and a plot of it."""

import json
import logging
import math
import random
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.nn.functional import cross_entropy, kl_div
from torch.nn.utils import clip_grad_norm_

from ..checkpoint.adapter_file import WEIGHTS, read_adapter
from ..checkpoint.files import write_tensors
from ..checkpoint.find import ADAPTER
from ..model.adapter import Adapter, LowRank, replace_layers
from ..model.model import Model
from ..model.network import Network
from ..runtime.atomic_file import write_atomic
from ..setting import Checked, setting
from ..study.plot import draw
from ..voice.voice import Voice
from .pairs import NOTHING, Example, ExampleBatch, stack

log = logging.getLogger(__name__)

# Fields of peft's config that say "plain LoRA"; peft has defaults for all others.
PLAIN = {"peft_type": "LORA", "bias": "none", "lora_dropout": 0.0, "inference_mode": True}


class LoraLinear(torch.nn.Module):
    """A linear layer with a low-rank update that is trained in float32, begun as peft does."""

    def __init__(self, base: torch.nn.Linear, rank: int):
        super().__init__()
        new: Any = {"device": base.weight.device, "dtype": torch.float32}
        self.base = base
        self.down = torch.nn.Parameter(torch.empty(rank, base.in_features, **new))
        self.up = torch.nn.Parameter(torch.zeros(base.out_features, rank, **new))
        torch.nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        update = states.float() @ self.down.T @ self.up.T
        known: torch.Tensor = self.base(states)
        return known + update.to(known.dtype)

    def part(self) -> LowRank:
        """Return a copy of the update, on the CPU."""
        up, down = (one.detach().cpu().clone() for one in (self.up, self.down))
        return LowRank(up, down, 1.0)


def add_lora(model: Model, pattern: str, rank: int) -> tuple[Network, dict[str, LoraLinear]]:
    """Return a network with trained layers in place of those whose names match, and these; ``model`` stays as it is."""
    layers = {
        name: LoraLinear(layer, rank)
        for name, layer in model.network.named_modules()
        if re.fullmatch(pattern, name) and isinstance(layer, torch.nn.Linear)
    }
    network: Any = replace_layers(model.network, layers)
    return network, layers


def write_adapter(folder: Path, layers: dict[str, LoraLinear], base: str) -> None:
    """Write an adapter's two files; ``base`` is the checkpoint's name. OSError if they cannot be written."""
    tensors = {}
    for name, layer in layers.items():
        tensors[f"base_model.model.{name}.lora_A.weight"] = layer.down.detach()
        tensors[f"base_model.model.{name}.lora_B.weight"] = layer.up.detach()
    rank = len(next(iter(layers.values())).down)
    config = {
        **PLAIN,
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": rank,  # the strength is alpha over r, 1
        "target_modules": sorted(layers),
    }
    write_tensors(folder / WEIGHTS, tensors, {"format": "pt"})
    write_atomic(folder / ADAPTER, json.dumps(config, indent=2).encode())


# Of group 0 with the end, ``[P, V]``, and of groups 1-15, ``[K * 15, V]``, in float32.
Logits: TypeAlias = tuple[torch.Tensor, torch.Tensor]


def predict(talker: Any, batch: ExampleBatch, shift: torch.Tensor | None = None) -> Logits:
    """Return a talker's logits for the batch's targets; ``shift`` is added to the speaker of x-vector clones."""
    hidden = talker.model(batch.inputs if shift is None else batch.shift_speakers(shift))
    first = talker.codec_head(hidden[batch.targets != NOTHING])
    rest = predict_groups(talker, hidden.flatten(0, 1)[batch.places], batch.codes)
    return first.float(), rest.flatten(0, 1).float()


def losses(logits: Logits, batch: ExampleBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean losses of group 0 with the end, and of groups 1-15."""
    first = cross_entropy(logits[0], batch.targets[batch.targets != NOTHING])
    return first, cross_entropy(logits[1], batch.codes[:, 1:].flatten())


def divergence(logits: Logits, known: Logits) -> torch.Tensor:
    """Return the mean KL divergence from known probabilities, of group 0 and of groups 1-15 together."""
    first, rest = (
        kl_div(now.log_softmax(-1), before.log_softmax(-1), reduction="batchmean", log_target=True)
        for now, before in zip(logits, known, strict=True)
    )
    return first + rest


def predict_groups(talker: Any, hidden: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Return the predictor's logits ``[K, 15, V]`` for the talker's states ``[K, H]`` before frames ``[K, 16]``.

    As upstream's ``forward_sub_talker_finetune``, whose loss compares each group with the one after it.
    """
    predictor = talker.code_predictor
    tables = [talker.model.codec_embedding, *predictor.model.codec_embedding]
    known = [table(codes[:, group]) for group, table in enumerate(tables[:-1])]
    states = predictor.model(predictor.small_to_mtp_projection(torch.stack((hidden, *known), dim=1)))
    return torch.stack([head(states[:, group]) for group, head in enumerate(predictor.lm_head, 1)], dim=1)


LINEAR = r"layers\.\d+\.(self_attn\.[qkvo]|mlp\.(gate|up|down))_proj"
LAYERS = {
    "predictor": rf"talker\.code_predictor\.model\.{LINEAR}",
    "talker": rf"talker\.model\.{LINEAR}",
    "all": rf"talker\.(code_predictor\.)?model\.{LINEAR}",
}
WARM_UP = 0.05  # share of the steps in which the rate rises; it falls to 0 as a cosine afterwards
LARGEST_GRADIENT = 1.0


@dataclass(frozen=True)
class Training(Checked):
    """How to train; ValueError for an invalid value."""

    rank: int = setting(16, "of the adapter, and its alpha: it is never scaled", 1)
    layers: str = setting("predictor", "the talker's change the words most", choices=tuple(LAYERS))
    steps: int = setting(200, "updates", 1)
    rate: float = setting(1e-3, "the highest learning rate (AdamW)", 0, above=True)
    speaker_rate: float = setting(2e-2, "of the speaker embedding of an x-vector clone; 0: it stays", 0)
    anchor: float = setting(0.1, "weight of the divergence from the checkpoint's probabilities, which keeps words", 0)
    batch: int = setting(8, "lines in a step", 1)
    frames: int = setting(128, "in a step that the code predictor learns; it runs over 16 positions for each", 1)
    check: int = setting(25, "steps between two losses of the held-out lines", 1)
    seed: int = setting(0, "of the adapter's first weights and of the order of the lines")

    def rate_at(self, step: int) -> float:
        """Return a step's share of the highest rate."""
        rising = max(1, round(WARM_UP * self.steps))
        if step < rising:
            return (step + 1) / rising
        return 0.5 + 0.5 * math.cos(math.pi * (step - rising) / max(1, self.steps - rising))


class NotFiniteGradient(ValueError):
    """An update whose gradient is not finite."""


@dataclass(frozen=True)
class Losses:
    """The losses of group 0 and of groups 1-15 after an update; ``held_out``: of the held-out lines, if there are."""

    step: int
    training: Sequence[float] | None = None
    held_out: Sequence[float] | None = None


class Trainer:
    """Trains an adapter beside a model, which can speak meanwhile.

    Args:
        model: loaded with full weights.
        options: how.
        on_update: called after each update; if it raises, the training ends.
        voice: of the lines. The speaker embedding of an x-vector clone is trained, too; None: nothing but the adapter.
    """

    def __init__(
        self,
        model: Model,
        options: Training,
        on_update: Callable[[int], object] = lambda _step: None,
        voice: Voice | None = None,
    ):
        torch.manual_seed(options.seed)
        self.model, self.options, self._on_update = model, options, on_update
        self.network, self.layers = add_lora(model, LAYERS[options.layers], options.rank)
        self.weights: list[torch.Tensor] = [one for layer in self.layers.values() for one in (layer.down, layer.up)]
        groups: list[dict[str, Any]] = [{"params": [*self.weights], "lr": options.rate}]
        self.shift: torch.Tensor | None = None
        speaker = voice.speaker_embedding if voice is not None and voice.kind == "x_vector" else None
        if speaker is not None and options.speaker_rate:
            self.shift = torch.zeros_like(speaker, device=model.device, dtype=torch.float32)
            groups.append({"params": [self.shift.requires_grad_()], "lr": options.speaker_rate})
            self.weights.append(self.shift)
        self.optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, options.rate_at)
        self.history: list[Losses] = []  # of each check
        self.kept = Losses(0)  # of the weights that are kept
        self.stopped = ""  # why the training ended early

    def train(self, lines: Sequence[Example], held_out: Sequence[Example]) -> None:
        """Train; leave the weights of the check with the lowest loss of the held-out lines, or of the last check.

        Errors of ``on_update`` and interrupts leave the best weights so far. Without any, raises NotFiniteGradient.
        """
        self._check(0, None, held_out)
        best = self._copy()
        try:
            for step, batch in zip(range(1, self.options.steps + 1), self._batches(lines), strict=False):
                found = self._update(batch, step)
                is_due = step % self.options.check == 0 or step == self.options.steps
                if is_due and self._check(step, found, held_out):
                    best = self._copy()
                self._on_update(step)
        except NotFiniteGradient as error:
            if not self.kept.step:
                raise
            self.stopped = str(error)
        finally:
            with torch.no_grad():
                for weight, kept in zip(self.weights, best, strict=True):
                    weight.copy_(kept)
            log.info("the weights of step %d are kept", self.kept.step)

    def seconds_per_update(self, lines: Sequence[Example]) -> float:
        """Measure an update without making it."""
        began = time.monotonic()
        self._gradient(next(self._batches(lines)), 0)
        return time.monotonic() - began

    def _batches(self, lines: Sequence[Example]) -> Iterator[ExampleBatch]:
        """Yield batches endlessly; all lines are used once before any is repeated."""
        chance, order = random.Random(self.options.seed), list[int]()
        while True:
            while len(order) < self.options.batch:
                order += chance.sample(range(len(lines)), len(lines))
            chosen, order = order[: self.options.batch], order[self.options.batch :]
            yield self._stack([lines[index] for index in chosen])

    def _stack(self, examples: Sequence[Example]) -> ExampleBatch:
        return stack(examples, self.model.config.talker_config.codec_eos_token_id, self.model.device)

    def _gradient(self, batch: ExampleBatch, step: int) -> tuple[float, float]:
        chance = torch.Generator().manual_seed(self.options.seed + step)
        frames = torch.randperm(len(batch.codes), generator=chance)[: self.options.frames]
        frames = frames.to(batch.codes.device)
        batch = replace(batch, codes=batch.codes[frames], places=batch.places[frames])
        logits = predict(self.network.talker, batch, self.shift)
        first, rest = losses(logits, batch)
        total = first + rest
        if self.options.anchor:
            with torch.no_grad():
                known = predict(self.model.network.talker, batch)
            total = total + self.options.anchor * divergence(logits, known)
        self.optimizer.zero_grad()
        total.backward()
        return float(first.detach()), float(rest.detach())

    def _update(self, batch: ExampleBatch, step: int) -> tuple[float, float]:
        found = self._gradient(batch, step)
        norms = [clip_grad_norm_(group["params"], LARGEST_GRADIENT) for group in self.optimizer.param_groups]
        if not all(bool(norm.isfinite()) for norm in norms):
            raise NotFiniteGradient(f"step {step}'s gradient is not finite: choose a lower rate, or precision fp32")
        self.optimizer.step()
        self.schedule.step()
        return found

    @torch.no_grad()
    def _check(self, step: int, training: tuple[float, float] | None, held_out: Sequence[Example]) -> bool:
        """Record the losses after an update; return whether its weights are the best so far."""
        if training is not None:
            log.info("step %d of %d: group 0 %.3f, groups 1-15 %.3f", step, self.options.steps, *training)
        now = Losses(step, training)
        if held_out:
            batches = [self._stack([one]) for one in held_out]
            logits = [predict(self.network.talker, one, self.shift) for one in batches]
            found = [torch.stack(losses(*pair)) for pair in zip(logits, batches, strict=True)]
            first, rest = torch.stack(found).mean(dim=0).tolist()  # each line counts alike
            now = Losses(step, training, (round(first, 4), round(rest, 4)))
            log.info("held-out lines after %d steps: group 0 %.3f, groups 1-15 %.3f", step, first, rest)
        self.history.append(now)
        is_best = sum(now.held_out or ()) <= sum(self.kept.held_out or ())  # not if it is NaN
        if step and not is_best:
            return False
        self.kept = now
        return True

    def _copy(self) -> list[torch.Tensor]:
        return [one.detach().clone() for one in self.weights]

    def adapter(self, name: str) -> Adapter:
        """Return the present weights as an adapter."""
        return Adapter(name, secrets.token_hex(32), {key: one.part() for key, one in self.layers.items()})

    def trained_voice(self, voice: Voice) -> Voice:
        """Return the lines' voice with its present speaker embedding."""
        known = voice.speaker_embedding
        if known is None or self.shift is None:
            return voice
        return replace(voice, speaker_embedding=(known + self.shift.detach().cpu()).to(known.dtype))

    def save(self, folder: Path) -> None:
        """Write the adapter as peft does, and read it as the pack does; ValueError if that fails."""
        write_adapter(folder, self.layers, self.model.name)
        adapter = read_adapter(folder)
        size = sum(part.up.numel() + part.down.numel() for part in adapter.parts.values())
        log.info("%s: %d layers, %.2f M numbers", folder, len(adapter.parts), size / 1e6)


def plot_losses(history: Sequence[Losses]) -> np.ndarray:
    """Draw the sums of losses of the trained and of the held-out lines, as uint8 RGB ``[H, W, 3]``."""

    def fill(figure: Any) -> None:
        axes = figure.subplots()
        for name, key in (("training", "training"), ("held-out", "held_out")):
            points = [(one.step, sum(found)) for one in history if (found := getattr(one, key))]
            if points:
                axes.plot(*zip(*points, strict=True), "o-", linewidth=1, label=name)
        axes.set_xlabel("updates")
        axes.set_ylabel("loss")
        axes.legend()

    return draw(fill)

"""The talker's update can be captured: it never waits for the device, and a replay equals a direct call."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lab.training.parallel import World
from lab.training.talker.batch import Batch
from lab.training.talker.batches import Lines
from lab.training.talker.codes import load_codes
from lab.training.talker.config import Config, load_config
from lab.training.talker.loop import Trainer
from lab.training.talker.train import build_trainer, prepare
from tests.lab.training.talker.tiny_talker import tiny_run, write_codes, write_config

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique")


class Waits(TorchDispatchMode):
    """Collects the operators whose result the host must read before it can continue."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        masks = [one for one in (args[1] if "index.Tensor" in name else ()) if one is not None]
        if any(word in name for word in WAITS) or any(mask.dtype == torch.bool for mask in masks):
            self.found.append(name)
        return func(*args, **(kwargs or {}))


def trainer_and_batches(root: Path, device: str, count: int, captured: bool) -> tuple[Trainer, list[Batch]]:
    if not (root / "codes").is_dir():
        write_codes(root / "codes")
        write_config(root / "talker.json")
    run = tiny_run(root, count, captured=captured)
    codes, world = load_codes(run.codes), World(torch.device(device))
    config, corpus = prepare(run, load_config(run.config), codes, world)
    trainer = build_trainer(run, config, codes, world)
    return trainer, list(itertools.islice(Lines(corpus, "train", seed=1), count))


def test_learning_never_waits_for_the_device(tmp_path: Path) -> None:
    trainer, (batch,) = trainer_and_batches(tmp_path, "cpu", 1, captured=False)
    trainer.learner.train()
    with Waits() as waits:
        trainer.updater.learn(batch, torch.ones(3))
    assert not waits.found
    with Waits() as waits:  # the check does detect a wait
        trainer.updater.gradient[trainer.updater.gradient != 0].sum().item()
    assert len(waits.found) == 2


def test_the_voices_styles_teach_the_speaker_encoder_and_nothing_else(tmp_path: Path) -> None:
    trainer, (batch,) = trainer_and_batches(tmp_path, "cpu", 1, captured=False)
    trainer.learner.eval()
    weights = dict(trainer.learner.named_parameters())
    loss = trainer.updater.outputs(batch).losses(0.0)["styles"]
    gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    for name, gradient in zip(weights, gradients, strict=True):
        taught = name.startswith(("encoder.", "style_head."))
        assert (gradient is not None) == taught, name
    learnt = {}
    for weight in (0.0, 0.3):
        trainer.updater.config = with_style_weight(trainer.config, weight)
        trainer.updater.learn(batch, torch.ones(3))
        learnt[weight] = trainer.updater.gradient.clone()
    share = torch.cat(
        [
            (g if g is not None else torch.zeros_like(w)).flatten()
            for g, w in zip(gradients, weights.values(), strict=True)
        ]
    )
    assert torch.allclose(learnt[0.3] - learnt[0.0], 0.3 * share, atol=1e-6)


def with_style_weight(config: Config, weight: float) -> Config:
    return replace(config, training=replace(config.training, style_weight=weight))


@pytest.mark.gpu
def test_replayed_updates_equal_direct_ones(tmp_path: Path) -> None:
    plain, batches = trainer_and_batches(tmp_path, "cuda", 30, captured=False)
    fast, _ = trainer_and_batches(tmp_path, "cuda", 1, captured=True)
    for trainer in (plain, fast):
        trainer.learner.eval()  # no dropout or noise
    for batch in batches:
        ours, theirs = (trainer.train_step(batch.to(trainer.device)) for trainer in (fast, plain))
        assert torch.allclose(ours["groups"], theirs["groups"], rtol=0.05)
        assert float(ours["gradient"]) == pytest.approx(float(theirs["gradient"]), rel=0.1)
    assert fast.replayer is not None and len(fast.replayer.captured) >= 2

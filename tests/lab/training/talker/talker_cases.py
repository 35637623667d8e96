"""Program that the processes of test_talker_processes.py run: ``python talker_cases.py CASE ROOT``.

Spawned processes import the main program again, and pytest's would not provide these functions.
"""

from __future__ import annotations

import copy
import itertools
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from lab.training.parallel import World, launch
from lab.training.talker.batch import Batch
from lab.training.talker.batches import Lines
from lab.training.talker.codes import load_codes
from lab.training.talker.config import load_config
from lab.training.talker.loop import Trainer
from lab.training.talker.train import build_trainer, prepare, train
from tests.lab.training.talker.tiny_talker import tiny_run

PROCESSES = 2
STEPS = 3


def prepared(world: World, root: Path) -> tuple[Trainer, list[list[Batch]]]:
    """Return a deterministic trainer, and the processes' batches per step, with different lengths and counts."""
    run = tiny_run(root, STEPS)
    codes = load_codes(run.codes)
    config, corpus = prepare(run, load_config(run.config), codes, world)
    trainer = build_trainer(run, config, codes, world)
    trainer.learner.eval()
    lengths = config.mix.lengths
    found = {length: [] for length in lengths}
    for batch in itertools.islice(Lines(corpus, "train", seed=3), 60):
        found[batch.length].append(batch)
    return trainer, [[found[length][step] for length in lengths[:PROCESSES]] for step in range(STEPS)]


def steps(world: World, root: Path) -> None:
    """Let each process learn from its own batches."""
    trainer, batches = prepared(world, root)
    begun = copy.deepcopy(trainer.learner.state_dict())
    tensors = {}
    for step, group in enumerate(batches):
        trainer.train_step(group[world.rank])
        tensors[f"gradient {step}"] = trainer.updater.gradient.clone()
        learnt = trainer.learner.named_parameters()
        tensors |= {f"weights {step}: {name}": value.detach().clone() for name, value in learnt}
        trainer.learner.load_state_dict(begun)
    save_file(tensors, root / f"{world.rank}.safetensors")


def training(world: World, root: Path) -> None:
    """Run the complete command twice."""
    trainer = train(world, tiny_run(root, 12))
    seconds = trainer.seconds
    trainer = train(world, tiny_run(root, 15, resume=True))
    assert trainer.step == 15 and trainer.seconds > seconds
    world.require_same(trainer.average.values)
    save_file({"rates": torch.tensor([trainer.learning_rate()])}, root / f"{world.rank}.safetensors")


if __name__ == "__main__":
    launch({"steps": steps, "training": training}[sys.argv[1]], PROCESSES, "cpu", Path(sys.argv[2]))

"""What the processes of test_codec_processes.py do: ``python codec_cases.py PROCESSES CORPUS CONFIG OUT``.

Each process trains on batches of its own; one process alone on those of two, joined.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from training.codec.config import Config, load_config
from training.codec.data import Batch, Speech, draw, load_speech
from training.codec.trainer import Trainer
from training.parallel import World, launch

STEPS, RATE = 4, 1e-3


def batch(speech: Speech, config: Config, step: int, ranks: tuple[int, ...]) -> Batch:
    """The batches of some processes in one."""
    drawn = [draw(speech, config.training, config.quantiser.dropout, step, rank) for rank in ranks]
    return Batch(*(torch.cat(parts) for parts in zip(*(one.tensors() for one in drawn), strict=True)))


def work(world: World, corpus: Path, config: Config, out: Path) -> None:
    """Some updates with discriminators, after the codebooks were filled; what they gave."""
    torch.set_num_threads(1)
    speech = load_speech(corpus, "train")
    trainer = Trainer(config, speech, world=world)
    if world.rank:  # weights that share() has to replace
        for parameter in trainer.codec.parameters():
            parameter.data.add_(1.0)
    trainer.share()
    trainer.fill_codebooks()
    before = {name: value.clone() for name, value in trainer.codec.trained().items()}
    for step in range(STEPS):
        trainer.updater.set_rates(RATE, RATE)
        trainer.updater.update(
            batch(speech, config, step, (0, 1) if world.size == 1 else (world.rank,)), True, True
        )
        trainer.require_same()
    moved = {f"moved.{name}": value.data - before[name] for name, value in trainer.codec.trained().items()}
    learnt = dict(zip(("vectors", "use", "sums"), trainer.codec.quantiser.learnt(), strict=True))
    opponents = {f"opponent.{name}": value for name, value in trainer.discriminators.state_dict().items()}
    sizes = {f"size.{name}": value for name, value in trainer.updater.balancer.sizes.items()}
    tensors = {**moved, **learnt, **opponents, **sizes}
    trainer._teach(lambda quantiser: quantiser.restart(1))
    tensors["restarted"] = trainer.codec.quantiser.vectors
    save_file(
        {name: value.detach().contiguous().clone() for name, value in tensors.items()},
        out / f"{world.rank}-of-{world.size}.safetensors",
    )


if __name__ == "__main__":
    _, processes, corpus, config, out = sys.argv
    launch(work, int(processes), "cpu", Path(corpus), load_config(Path(config)), Path(out))

"""Program that the processes of test_codec_processes.py run: ``python codec_cases.py PROCESSES CORPUS CONFIG OUT``.

Each process trains on separate batches; a single process on those of two, joined.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from lab.training.codec.config import Config, load_config
from lab.training.codec.cost import time_steps
from lab.training.codec.data import Batch, Speech, load_speech, sample_batch
from lab.training.codec.trainer import Trainer
from lab.training.parallel import World, launch

STEPS, RATE = 4, 1e-3


def batch(speech: Speech, config: Config, step: int, ranks: tuple[int, ...]) -> Batch:
    """Return the batches of some processes, joined."""
    drawn = [sample_batch(speech, config.training, config.quantiser.dropout, step, rank) for rank in ranks]
    return Batch(*(torch.cat(parts) for parts in zip(*(one.tensors() for one in drawn), strict=True)))


def work(world: World, corpus: Path, config: Config, out: Path) -> None:
    """Run some updates with discriminators, after filling the codebooks; return their results."""
    torch.set_num_threads(1)
    speech = load_speech(corpus, "train")
    trainer = Trainer(config, speech, world=world)
    if world.rank:  # weights that share() must replace
        for parameter in trainer.codec.parameters():
            parameter.data.add_(1.0)
    trainer.share()
    trainer.fill_codebooks()
    for step in range(STEPS):
        drawn = batch(speech, config, step, (0, 1) if world.size == 1 else (world.rank,))
        trainer.updater.set_rates(RATE, RATE)
        trainer.updater.update(drawn, True, True)
        trainer.require_same()
        if not step:
            save(learnt(trainer), out / f"{world.rank}-of-{world.size}.safetensors")
    trainer._teach(lambda quantiser: quantiser.restart(1))  # process 0 samples among its own rows
    save(trained(trainer), out / f"{world.rank}-of-{world.size}-at-the-end.safetensors")
    assert len(list(time_steps(trainer, warm=1, timed=1))) == 4


def learnt(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Return the first update's gradients, their sizes at the waveform, and the codebooks' means."""
    tensors = {f"gradient.{name}": value.grad for name, value in weights(trainer) if value.grad is not None}
    sizes = {f"size.{name}": size for name, size in trainer.updater.balancer.sizes.items()}
    return {**tensors, **sizes, **codebooks(trainer)}


def trained(trainer: Trainer) -> dict[str, torch.Tensor]:
    """Return all weights and codebooks."""
    return {**dict(weights(trainer)), **codebooks(trainer)}


def weights(trainer: Trainer) -> list[tuple[str, torch.Tensor]]:
    return [*trainer.codec.trained().items(), *trainer.discriminators.named_parameters()]


def codebooks(trainer: Trainer) -> dict[str, torch.Tensor]:
    return dict(zip(("vectors", "use", "sums"), trainer.codec.quantiser.learnt(), strict=True))


def save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    save_file({name: value.detach().contiguous().clone() for name, value in tensors.items()}, path)


if __name__ == "__main__":
    _, processes, corpus, config, out = sys.argv
    launch(work, int(processes), "cpu", Path(corpus), load_config(Path(config)), Path(out))

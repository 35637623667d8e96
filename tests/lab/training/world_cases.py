"""Program that the processes of test_parallel.py run: ``python world_cases.py CASE PROCESSES OUT``.

Spawned processes import the main program again, and pytest's would not provide these functions.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

from lab.training.parallel import World, launch


def collectives(world: World, out: Path) -> None:
    """Call every method of the world, on tensors that depend on the rank."""
    torch.manual_seed(world.rank)
    one = torch.full((2, 3), float(world.rank + 1)).t()
    two = torch.arange(4.0) * (world.rank + 1)
    numbers = torch.tensor([world.rank + 5])
    world.average([one, two])
    summed = torch.tensor([1.0, float(world.rank)])
    world.add([summed])
    random = torch.rand(3)
    world.broadcast([random, numbers])
    agreed = [world.agree(10.0 * world.rank + 0.25), world.agree(-1.0 - world.rank)]
    world.require_same({"random": random})
    world.meet()
    found = {"one": one, "two": two, "summed": summed, "random": random, "numbers": numbers}
    tensors = {name: value.contiguous() for name, value in found.items()}
    save_file({**tensors, "agreed": torch.tensor(agreed)}, out / f"{world.rank}.safetensors")


def different(world: World, _: Path) -> None:
    """Check weights that differ between processes."""
    world.require_same({"same": torch.ones(3), "lost": torch.full((3,), 1.0 + 0.1 * world.rank)})


def error(world: World, _: Path) -> None:
    """Raise in process 1 while process 0 waits for it."""
    if world.rank == 1:
        raise ValueError("the disk is full")
    world.add([torch.ones(1)])
    time.sleep(3600)


def death(world: World, _: Path) -> None:
    """Exit process 1 silently while process 0 waits for it."""
    if world.rank == 1:
        os._exit(3)
    time.sleep(3600)


CASES = {case.__name__: case for case in (collectives, different, error, death)}

if __name__ == "__main__":
    launch(CASES[sys.argv[1]], int(sys.argv[2]), "cpu", Path(sys.argv[3]))

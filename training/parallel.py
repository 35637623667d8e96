"""Training on all GPUs of a machine: a process each, with its own lines, and gradients averaged over all of them.

A process is told apart by its ``World``; one process alone has a world of size 1, in which nothing is exchanged.
"""

from __future__ import annotations

import datetime
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

TIMEOUT = datetime.timedelta(minutes=5)  # a process that waits longer has lost the others
AGREE_EVERY = 20  # steps between two looks at process 0's clock
TOLERANCE = 1e-5  # of a checksum, relative: sums of the same numbers


@dataclass(frozen=True)
class World:
    """This process among ``size`` ones; ``rank`` 0 logs and saves."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process logs, validates and saves."""
        return self.rank == 0

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace tensors of one dtype by their means over all processes, in place; may be captured in a CUDA graph."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.size
        parts = flat.split([tensor.numel() for tensor in tensors])
        torch._foreach_copy_(
            list(tensors), [part.view_as(one) for part, one in zip(parts, tensors, strict=True)]
        )

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """Give all processes what process 0 has."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def agree(self, value: float, step: int, before: float) -> float:
        """Process 0's value, asked for in every AGREE_EVERY-th step; ``before``, the last one, in between."""
        if self.size == 1:
            return value
        if step % AGREE_EVERY:
            return before
        told = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.broadcast(told, 0)
        return float(told)

    def check_same(self, tensors: Sequence[torch.Tensor]) -> None:
        """Raise RuntimeError unless all processes hold the same numbers; every process must ask at the same step."""
        if self.size == 1:
            return
        own = torch.stack([tensor.detach().double().abs().sum() for tensor in tensors]).sum()
        sums = [torch.zeros_like(own) for _ in range(self.size)]
        dist.all_gather(sums, own)
        least, most = float(torch.stack(sums).min()), float(torch.stack(sums).max())
        if most - least > TOLERANCE * abs(most):
            raise RuntimeError(
                f"the processes have come apart (sums of weights from {least} to {most}): resume from the last state"
            )


def count_processes(asked: int, device: str) -> int:
    """How many processes to start; 0 asks for one a GPU."""
    if asked < 0:
        raise ValueError(f"processes={asked}: 1 or more, or 0 for one a GPU")
    return asked or (max(1, torch.cuda.device_count()) if device == "cuda" else 1)


def launch(function: Callable[..., None], processes: int, device: str, *args: Any) -> None:
    """Call ``function(world, *args)`` in so many processes and wait for all; the first failure ends the others.

    ``device`` "cuda" gives each process a GPU of its own. A single process is this one.
    """
    if processes == 1:
        function(World(torch.device(device)), *args)
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(_run, (function, processes, device, port, args), nprocs=processes)


def _run(
    rank: int, function: Callable[..., None], size: int, device: str, port: int, args: Sequence[Any]
) -> None:
    own = torch.device("cuda", rank) if device == "cuda" else torch.device(device)
    if own.type == "cuda":
        torch.cuda.set_device(own)
        # NVLink multicast can put a shared host's GPUs out of service when a process is killed in it.
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    else:
        torch.set_num_threads(1)
    backend = "nccl" if own.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size, timeout=TIMEOUT
    )
    function(World(own, rank, size), *args)
    # Nothing is torn down: NCCL waits for ever when a communicator goes before the graphs that hold it.

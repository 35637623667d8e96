"""Training on all GPUs of a machine: one process per GPU, with the same weights and separate batches.

``launch`` starts the processes. Each gets a ``World`` to average gradients and to synchronise with the others. A single
process has a ``World`` too, whose methods do nothing.

``average`` and ``add`` may be captured in CUDA graphs. NCCL and torch 2.11 require:

- The communicator exists and has run the same sizes before the capture: updates run a few times uncaptured first.
- Every process captures and replays the same updates in the same order, one GPU per process.
- ``async_op=False``, so that the collective is launched on the capturing stream itself.
- ``capture_error_mode="thread_local"``: during the capture NCCL's watchdog thread queries events of earlier, uncaptured
  collectives. It does not see captured ones, so ``TORCH_NCCL_ASYNC_ERROR_HANDLING`` can keep its default, but its
  timeout does not detect a captured collective that hangs. ``TORCH_NCCL_BLOCKING_WAIT`` must not be set: it waits.
- A communicator is never destroyed while a graph holds it: NCCL 2.26 and later would wait for the graph forever. That
  is why the processes exit without cleanup.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

import torch
from torch import distributed, multiprocessing
from torch.distributed import TCPStore

HOST = "127.0.0.1"
TIMEOUT = timedelta(minutes=10)  # for a process that does not reach a synchronisation point
TOLERANCE = 1e-3  # of a tensor's norm, between processes; rounding differences are far smaller
# NVLink multicast can break GPUs that are shared with other jobs.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}

log = logging.getLogger(__name__)


class World:
    """This process, number ``rank`` of ``size``, on ``device``.

    Methods only queue work on the device, unless their docstring says that they wait. All processes must call the same
    methods in the same order with tensors of the same shapes.
    """

    def __init__(self, device: torch.device, rank: int = 0, size: int = 1, store: TCPStore | None = None):
        if (size > 1) != (store is not None):
            raise ValueError(
                f"{size} processes and store {store}: several processes need a store, one has none"
            )
        self.device, self.rank, self.size, self.store = device, rank, size, store
        self._agreements = self._meetings = 0

    @property
    def first(self) -> bool:
        """Whether this is the process that logs, validates and saves."""
        return self.rank == 0

    def average(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace tensors (of one dtype) by their mean over the processes, in place, in one collective."""
        self._reduce(tensors, 1 / self.size)

    def add(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace tensors (of one dtype) by their sum over the processes, in place, in one collective."""
        self._reduce(tensors, 1.0)

    @torch.no_grad()
    def _reduce(self, tensors: Sequence[torch.Tensor], factor: float) -> None:
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        distributed.all_reduce(flat)
        _put_back(flat * factor, tensors)

    @torch.no_grad()
    def broadcast(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace tensors by those of process 0, in place."""
        if self.size == 1:
            return
        for dtype in {tensor.dtype: None for tensor in tensors}:
            some = [tensor for tensor in tensors if tensor.dtype == dtype]
            flat = torch.cat([tensor.flatten() for tensor in some])
            distributed.broadcast(flat, 0)
            _put_back(flat, some)

    def agree(self, value: float) -> float:
        """Return process 0's value. Others wait for process 0 on the host, not for a device; process 0 never waits."""
        if self.store is None:
            return value
        key = f"agreed {self._agreements}"
        self._agreements += 1
        if self.first:
            self.store.set(key, repr(float(value)))
            return float(value)
        return float(self.store.get(key))

    @torch.no_grad()
    def require_same(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Compare the norms of tensors between processes; waits for the device.

        Raises:
            RuntimeError: a norm differs by more than rounding, or is not finite.
        """
        if self.size == 1:
            return
        norms = torch.stack([norm.double() for norm in torch._foreach_norm(list(tensors.values()))])
        largest, smallest = norms.clone(), norms.clone()
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        distributed.all_reduce(smallest, distributed.ReduceOp.MIN)
        same = (largest - smallest) <= TOLERANCE * largest + 1e-9
        for name, right, low, high in zip(
            tensors, same.tolist(), smallest.tolist(), largest.tolist(), strict=True
        ):
            if not right:
                raise RuntimeError(
                    f"{name} differs between {self.size} processes: norms from {low} to {high}"
                )

    def meet(self) -> None:
        """Wait until all processes have arrived here and their devices have finished."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self.store is None:
            return
        self._meetings += 1
        name = f"meeting {self._meetings}"
        if self.store.add(name, 1) == self.size:
            self.store.set(f"{name}: all", "")
        self.store.wait([f"{name}: all"])


ALONE = World(torch.device("cpu"))  # for a single process, whatever its device


def _put_back(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    parts = flat.split([tensor.numel() for tensor in tensors])
    torch._foreach_copy_(
        list(tensors), [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
    )


def launch(function: Callable[..., None], processes: int, device: str, *arguments: Any) -> None:
    """Call ``function(world, *arguments)`` in ``processes`` processes (0: one per GPU); a single one runs here.

    Args:
        function: a module's top-level function; ``arguments`` must be picklable.
        processes: at most one per GPU with ``device`` "cuda"; any number on the CPU, for tests.
        device: as torch names it.

    Raises:
        ValueError: more processes than GPUs.
        RuntimeError: a process failed, after logging its error; the others were terminated.
    """
    kind = torch.device(device).type
    gpus = torch.cuda.device_count() if kind == "cuda" else 0
    size = processes or max(1, gpus)
    if kind == "cuda" and size > gpus:
        raise ValueError(f"{size} processes and {gpus} GPUs: use at most one process per GPU (0: all)")
    if size == 1:
        function(World(torch.device(device)), *arguments)
        return
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    try:
        multiprocessing.spawn(_member, (Group(size, kind, store.port), function, arguments), size)
    except multiprocessing.ProcessExitedException as error:
        raise RuntimeError(
            f"process {error.error_index} of {size} ended with {error.signal_name or error.exit_code}, its error is "
            "logged above; the others were terminated: resume from the last saved state"
        ) from error


@dataclass(frozen=True)
class Group:
    """The processes of a launch: how many, the kind of device ("cuda" or "cpu") and the port of their store."""

    size: int
    kind: str
    port: int


def _member(rank: int, group: Group, function: Callable[..., None], arguments: tuple[Any, ...]) -> NoReturn:
    """Run one of the processes; it inherits the parent's environment."""
    try:
        world = _join(rank, group)
        function(world, *arguments)
        world.meet()
    except BaseException:
        log.exception("process %d of %d", rank, group.size)
        _end(1)
    _end(0)


def _join(rank: int, group: Group) -> World:
    cuda = group.kind == "cuda"
    device = torch.device(group.kind, rank) if cuda else torch.device(group.kind)
    for name, value in NO_MULTICAST.items():
        os.environ.setdefault(name, value)
    if cuda:
        torch.cuda.set_device(device)
    # Two connections: waiting in ``agree`` must not block NCCL's threads.
    ours, theirs = (TCPStore(HOST, group.port, is_master=False, timeout=TIMEOUT) for _ in range(2))
    distributed.init_process_group(
        "nccl" if cuda else "gloo",
        store=theirs,
        rank=rank,
        world_size=group.size,
        timeout=TIMEOUT,
        device_id=device if cuda else None,
    )
    return World(device, rank, group.size, ours)


def _end(code: int) -> NoReturn:
    """Exit at once: cleanup could wait forever for other processes or captured graphs."""
    logging.shutdown()
    os._exit(code)

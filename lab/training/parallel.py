"""Training on all GPUs of a machine: one process each, with the same weights and with batches of its own.

``launch`` starts the processes; each gets a ``World`` to average gradients and to agree with the others. One process
alone has a ``World`` too, in which nothing has to be done.

``average`` and ``add`` may be captured in CUDA graphs. What NCCL and torch 2.11 ask for that:

- The communicator exists, and has run the same sizes, before the capture: updates run a few times uncaptured first.
- Every process captures and replays the same updates in the same order, one GPU a process.
- ``async_op=False``: the collective is then launched on the capturing stream itself.
- Captured with ``capture_error_mode="thread_local"``: NCCL's watchdog thread asks for events of earlier, uncaptured
  collectives meanwhile. Captured ones are not shown to it, so ``TORCH_NCCL_ASYNC_ERROR_HANDLING`` may keep its default,
  but one that hangs is not found by its timeout either. ``TORCH_NCCL_BLOCKING_WAIT`` must not be set: it waits.
- A communicator is never destroyed while a graph holds it: NCCL from 2.26 on would wait forever for the graph's end.
  That is why the processes end without any cleaning up.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
from torch import distributed, multiprocessing
from torch.distributed import TCPStore

HOST = "127.0.0.1"
PATIENCE = timedelta(minutes=10)  # with a process that does not come to a meeting point
SPREAD = 1e-3  # of a tensor's norm over the processes: rounding stays far below it
# NVLink multicast can put GPUs that others share out of service.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}

log = logging.getLogger(__name__)


class World:
    """This process among ``size`` ones: number ``rank``, on ``device``.

    Every method but ``agree`` only adds work to the device's queue, unless it says otherwise. All processes have to
    call the same methods in the same order with tensors of the same shapes.
    """

    def __init__(self, device: torch.device, rank: int = 0, size: int = 1, store: TCPStore | None = None):
        if (size > 1) != (store is not None):
            raise ValueError(f"{size} processes and store {store}: several need one, one alone none")
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
        """Process 0's value. Waits for process 0 to say it, for no device, and process 0 for nobody."""
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
        """Compare the norms of tensors over the processes; waits for the device.

        Raises:
            RuntimeError: one differs by more than rounding, or is not finite.
        """
        if self.size == 1:
            return
        norms = torch.stack([norm.double() for norm in torch._foreach_norm(list(tensors.values()))])
        largest, smallest = norms.clone(), norms.clone()
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
        distributed.all_reduce(smallest, distributed.ReduceOp.MIN)
        same = (largest - smallest) <= SPREAD * largest + 1e-9
        for name, right, low, high in zip(
            tensors, same.tolist(), smallest.tolist(), largest.tolist(), strict=True
        ):
            if not right:
                raise RuntimeError(f"{name} differs over {self.size} processes: norms from {low} to {high}")

    def meet(self) -> None:
        """Wait until every process's device is done and every process is here."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        if self.store is None:
            return
        self._meetings += 1
        name = f"meeting {self._meetings}"
        if self.store.add(name, 1) == self.size:
            self.store.set(f"{name}: all", "")
        self.store.wait([f"{name}: all"])


ALONE = World(torch.device("cpu"))  # for what runs in one process, wherever its tensors are


def _put_back(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    parts = flat.split([tensor.numel() for tensor in tensors])
    torch._foreach_copy_(
        list(tensors), [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
    )


def launch(function: Callable[..., None], processes: int, device: str, *arguments: Any) -> None:
    """Call ``function(world, *arguments)`` in so many processes (0: one for each GPU), or here for one.

    Args:
        function: of a module's top level; ``arguments`` must be picklable.
        processes: one a GPU with ``device`` "cuda"; on the CPU any number, for tests.
        device: as torch names it.

    Raises:
        ValueError: more processes than GPUs.
        RuntimeError: a process ended with an error, which it has logged; the others were ended then.
    """
    kind = torch.device(device).type
    gpus = torch.cuda.device_count() if kind == "cuda" else 0
    size = processes or max(1, gpus)
    if kind == "cuda" and size > gpus:
        raise ValueError(f"{size} processes and {gpus} GPUs: at most one process a GPU (0: all)")
    if size == 1:
        function(World(torch.device(device)), *arguments)
        return
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    try:
        multiprocessing.spawn(_member, (function, size, kind, store.port, arguments), size)
    except multiprocessing.ProcessExitedException as error:
        raise RuntimeError(
            f"process {error.error_index} of {size} ended with {error.signal_name or error.exit_code}, its error is "
            "logged above; the others were ended too: resume from the last saved state"
        ) from error


def _member(
    rank: int, function: Callable[..., None], size: int, kind: str, port: int, arguments: tuple[Any, ...]
) -> NoReturn:
    """One of the processes; the environment is that of the first one."""
    try:
        world = _join(rank, size, kind, port)
        function(world, *arguments)
        world.meet()
    except BaseException:
        log.exception("process %d of %d", rank, size)
        _end(1)
    _end(0)


def _join(rank: int, size: int, kind: str, port: int) -> World:
    device = torch.device(kind, rank) if kind == "cuda" else torch.device(kind)
    for name, value in NO_MULTICAST.items():
        os.environ.setdefault(name, value)
    if kind == "cuda":
        torch.cuda.set_device(device)
    # Two connections: who waits for an agreement must not keep NCCL's threads from the store.
    ours, theirs = (TCPStore(HOST, port, is_master=False, timeout=PATIENCE) for _ in range(2))
    distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        store=theirs,
        rank=rank,
        world_size=size,
        timeout=PATIENCE,
        device_id=device if kind == "cuda" else None,
    )
    return World(device, rank, size, ours)


def _end(code: int) -> NoReturn:
    """End at once: cleaning up could wait for ever for what other processes or captured graphs hold."""
    logging.shutdown()
    os._exit(code)

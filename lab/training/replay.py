"""Updates replayed from CUDA graphs: a step whose kernels are shorter than their launches is launched as one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch

WARM_UP = 3  # calls of a kind before it is captured

Results = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Captured:
    """A graph, the tensors that it reads its inputs from, and those that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[torch.Tensor, ...]
    results: Results


class Replayer:
    """Captures an update of each kind after its first few calls, and replays it from then on (CUDA).

    An update must not wait for the device, and its shapes must follow from its inputs' alone. All graphs share one
    pool of memory, so they must run one after another, on one stream.
    """

    def __init__(self) -> None:
        self.calls: dict[Hashable, int] = {}
        self.captured: dict[Hashable, Captured] = {}
        self.pool: tuple[int, int] | None = None

    def run(self, kind: Hashable, update: Callable[..., Results], inputs: Sequence[torch.Tensor]) -> Results:
        """Update on tensors; what is given back is overwritten by the next call of the same kind.

        Args:
            kind: of update; each and each set of shapes has its own graph.
            update: takes ``inputs``, gives tensors by name.
            inputs: on the device; copied to where the graph reads.
        """
        key = (kind, tuple(tuple(tensor.shape) for tensor in inputs))
        self.calls[key] = self.calls.get(key, 0) + 1
        if self.calls[key] <= WARM_UP:
            return update(*inputs)
        if key not in self.captured:
            self.captured[key] = self._capture(update, inputs)
        captured = self.captured[key]
        for own, new in zip(captured.inputs, inputs, strict=True):
            own.copy_(new)
        captured.graph.replay()
        return captured.results

    def _capture(self, update: Callable[..., Results], inputs: Sequence[torch.Tensor]) -> Captured:
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        own = tuple(tensor.clone() for tensor in inputs)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Recorded, and nothing run: the first replay is this call's update. Other threads (the loader's, which pins
        # memory, and NCCL's, which watches) may go on meanwhile: hence thread_local.
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            results = update(*own)
        return Captured(graph, own, results)

"""Capture functions in CUDA graphs and replay them; call them directly if that is not possible."""

import logging
import traceback
from collections.abc import Callable, Hashable
from typing import Any

import torch

from .fallback import Fallback
from .first_times import FirstTimes

log = logging.getLogger(__name__)

GRAPHS = "CUDA graphs"
NO_CUDA = Fallback(GRAPHS, "no CUDA")
HIGHEST = -5  # torch takes the highest priority that it and the device have


class CaptureStream:
    """The stream that captures run on, created for a device on first use; ``first`` gives its kernels priority.

    Decoders that never run at the same time share one: libraries keep memory for every stream they see (cuBLAS 32 MiB
    on a Hopper GPU), and a graph keeps the memory it was captured with.
    """

    def __init__(self, first: bool = False, first_times: FirstTimes | None = None) -> None:
        self.first_times = first_times or FirstTimes()
        self._priority = HIGHEST if first else 0
        self._stream: Any = None

    def on(self, device: torch.device) -> Any:
        if self._stream is None or self._stream.device != device:
            self._stream = torch.cuda.Stream(device, priority=self._priority)
        return self._stream


class CapturedGraphs:
    """Graphs of functions of static buffers, by key: the first call is direct, the second captures, later ones replay.

    The direct call does real work and warms up what a capture must not initialize. It runs on the capture stream, so
    that libraries' memory per stream (cuBLAS's workspace) exists before the capture and belongs to no graph. All
    graphs share one memory pool: they run consecutively, and their results are stored outside it. ``captures`` may be
    shared with others whose graphs never run at the same time.

    Without CUDA, and after the first capture that fails, with one warning, every call is direct; ``fallback`` has the
    reason. No reference to the functions is kept.
    """

    def __init__(self, device: torch.device, captures: CaptureStream | None = None):
        self.device = device
        self.fallback: Fallback | None = None if device.type == "cuda" else NO_CUDA
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        captures = captures or CaptureStream()
        self._first_times = captures.first_times
        self._stream: Any = None if self.fallback else captures.on(device)
        self._pool: Any = None if self.fallback else torch.cuda.graph_pool_handle()

    def forget(self) -> None:
        """Release all graphs and their memory; the next calls are direct, then capture again."""
        if self._graphs:
            torch.cuda.synchronize(self.device)  # a replay may still be in flight
            self._graphs.clear()
            self._pool = torch.cuda.graph_pool_handle()  # a pool without graphs cannot be reused
        self._first_times.forget(self)

    def has(self, key: Hashable) -> bool:
        return self._graphs.get(key) is not None

    def lacks(self, key: Hashable) -> bool:
        """Return whether the function of this key is not captured, and could be."""
        return self.fallback is None and not self.has(key)

    def prepare(self, key: Hashable, call: Callable[[], object]) -> None:
        """Have ``call`` run the function of this key until it is captured, if graphs can be captured."""
        while self.lacks(key):
            call()

    def plan(self, need: int, key: Hashable, call: Callable[[], object]) -> None:
        """Have ``FirstTimes.prepare_next`` do so, in the order of need."""
        if self.lacks(key):
            self._first_times.plan(need, self, key, call)

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Call, capture or replay the function of this key, in the current stream's order."""
        if self.fallback is None and key not in self._graphs:
            with self._first_times.noted(key, captures=False):
                self._warm_up(function)
            self._graphs[key] = None
            return
        if self.fallback is None and self._graphs[key] is None:
            with self._first_times.noted(key, captures=True):
                self._graphs[key] = self._capture(function)
        graph = self._graphs.get(key)
        if graph is None:
            function()
        else:
            graph.replay()

    def _warm_up(self, function: Callable[[], None]) -> None:
        current = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(current)
        try:
            with torch.cuda.stream(self._stream):
                function()
        finally:
            current.wait_stream(self._stream)

    def _capture(self, function: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        # A capture that fails at its end leaves torch on the capture's stream: this `with` restores it.
        with torch.cuda.stream(torch.cuda.current_stream(self.device)):
            try:
                graph = torch.cuda.CUDAGraph()
                # Another thread's CUDA calls (a preview's, for example) must not break the capture.
                with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                    try:
                        function()
                    except BaseException as error:
                        release_frames(error)
                        raise
            except torch.cuda.OutOfMemoryError:
                raise
            except RuntimeError as error:
                why = str(error).partition("\n")[0]
                self.fallback = Fallback(GRAPHS, why)
                log.warning("CUDA graphs cannot be captured here (%s): frames run op by op, slower", why)
                return None
            return graph


def release_frames(error: BaseException) -> None:
    """Clear the stack frames of an error and of its causes, so that they hold no tensors."""
    # Under cudaMallocAsync, freeing memory of a failed capture after it crashes the process in torch's allocator.
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            waiting += [one.__cause__, one.__context__]


def graphs_keep_memory(device: torch.device) -> bool:
    """Return whether memory allocated in a capture becomes a node of its graph, as under cudaMallocAsync."""
    # Triton's kernels refuse such memory, and torch cannot return it to the device after the graph is released.
    return device.type == "cuda" and torch.cuda.get_allocator_backend() == "cudaMallocAsync"

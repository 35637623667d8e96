"""Capture functions in CUDA graphs and replay them; call them plainly where that cannot be."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Hashable
from typing import Any

import torch

log = logging.getLogger(__name__)


class CaptureStream:
    """The stream that captures run on, made for a device when it is first asked for.

    Engines that run one after another share one: libraries keep memory for every stream that they meet (cuBLAS
    32 MiB on a Hopper GPU), and a graph goes on using what it was captured with.
    """

    def __init__(self) -> None:
        self._stream: Any = None

    def on(self, device: torch.device) -> Any:
        """The stream of this device; the last one's is let go of."""
        if self._stream is None or self._stream.device != device:
            self._stream = torch.cuda.Stream(device)
        return self._stream


class CapturedGraphs:
    """Graphs of functions of static buffers, by key: the first call is plain, the second captures, later ones replay.

    The plain call is real work and warms up what a capture must not meet cold: it runs on the stream that captures,
    so that what libraries keep for a stream (cuBLAS's workspace) is there before and no graph's own. All graphs
    share one memory pool: what they leave behind lies outside of it, and they run one after another.

    On other devices than CUDA every call is plain; so it is from the first capture that fails on, after one warning.
    ``refused`` says why, or is None.
    Nothing is kept of a function itself, so what it holds is not held here. ``captures`` is shared with others whose
    graphs never run beside these.
    """

    def __init__(self, device: torch.device, captures: CaptureStream | None = None):
        self.device = device
        self.refused: str | None = None if device.type == "cuda" else "no CUDA"
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        self._stream: Any = None if self.refused else (captures or CaptureStream()).on(device)
        self._pool: Any = None if self.refused else torch.cuda.graph_pool_handle()

    def forget(self) -> None:
        """Let go of all graphs and of their memory; the next calls are plain and capture anew."""
        if self._graphs:
            torch.cuda.synchronize(self.device)  # a replay may still be under way
            self._graphs.clear()
            self._pool = torch.cuda.graph_pool_handle()  # one whose graphs are gone cannot be used again

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Call, capture or replay the function of this key, in the current stream's order."""
        if self.refused is None and key not in self._graphs:
            self._warm_up(function)
            self._graphs[key] = None
            return
        if self.refused is None and self._graphs[key] is None:
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
        # A capture that fails at its end leaves torch on the capture's stream: this `with` brings it back.
        with torch.cuda.stream(torch.cuda.current_stream(self.device)):
            try:
                graph = torch.cuda.CUDAGraph()
                # Another thread's CUDA calls (a preview's, say) must not spoil the capture.
                with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                    try:
                        function()
                    except BaseException as error:
                        let_go(error)
                        raise
            except torch.cuda.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self.refused = str(error).partition("\n")[0]
                log.warning(
                    "CUDA graphs cannot be captured here (%s): frames run op by op, slower", self.refused
                )
                return None
            return graph


def let_go(error: BaseException) -> None:
    """Free what the frames of an error hold, and those of its causes.

    Under cudaMallocAsync, memory of a capture that failed and is freed after it ends the process, in torch's allocator.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            waiting += [one.__cause__, one.__context__]


def graphs_keep_memory(device: torch.device) -> bool:
    """Whether what is allocated in a capture becomes a node of its graph: so it does under cudaMallocAsync.

    Triton's kernels refuse such memory, and torch cannot give it back to the device when the graph is gone.
    """
    return device.type == "cuda" and torch.cuda.get_allocator_backend() == "cudaMallocAsync"

"""Capture functions in CUDA graphs and replay them; call them directly if that is not possible.

The first two calls of a captured function are slow: ``WarmUps`` plans them for idle times.
"""

import logging
import time
import traceback
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

log = logging.getLogger(__name__)

GRAPHS = "CUDA graphs"
HIGHEST = -5  # torch clamps it to the highest priority of the device
# Priorities, after what one line needs: batches that begin together, long lines, offline lines.
TOGETHER, LONG, OFFLINE = range(3)
# Slower replacements by part.
INSTEAD = {
    "CUDA graphs": "op by op, without CUDA graphs",
    "Triton kernels": "torch operations",
    "codec kernels": "waveforms in torch operations, slower",
}


@dataclass(frozen=True)
class Fallback:
    """A ``part`` (one of INSTEAD) that cannot run, and the reason."""

    part: str
    why: str

    def describe(self) -> str:
        return f"{INSTEAD[self.part]}: {self.why}"


NO_CUDA = Fallback(GRAPHS, "no CUDA")


class WarmUps:
    """Planned warm-up calls and captures, and counts of all.

    A warm-up that was not planned delays lines: once ``is_settled``, it is logged.
    """

    def __init__(self) -> None:
        self.captures = 0  # captured graphs
        self.late = 0  # warm-ups that delayed lines
        self.seconds = 0.0  # host time of all of them
        self._planned: dict[tuple[Any, Hashable], tuple[int, Callable[[], object]]] = {}
        self.is_settled = self._follows_plan = False

    def plan(self, priority: int, graphs: Any, key: Hashable, call: Callable[[], object]) -> None:
        """Plan to repeat ``call`` until the function of a key is captured; it returns False if it cannot run now."""
        self._planned[graphs, key] = priority, call

    def forget(self, graphs: Any) -> None:
        self._planned = {which: how for which, how in self._planned.items() if which[0] is not graphs}

    @property
    def planned(self) -> int:
        """How many graphs are captured or planned."""
        return self.captures + sum(graphs.lacks(key) for graphs, key in tuple(self._planned))

    def prepare_next(self) -> bool:
        """Run the next planned warm-up that can run now; return whether there was one."""
        self._planned = {which: how for which, how in self._planned.items() if which[0].lacks(which[1])}
        for (graphs, _), (_, call) in sorted(self._planned.items(), key=lambda item: item[1][0]):
            self._follows_plan = True
            try:
                if call() is not False:
                    return True
            except Exception:
                self.forget(graphs)  # it would fail again
                raise
            finally:
                self._follows_plan = False
        return False

    @contextmanager
    def noted(self, key: Hashable, captures: bool) -> Iterator[None]:
        began = time.perf_counter()
        yield
        took = time.perf_counter() - began
        self.seconds += took
        self.captures += captures
        if self.is_settled and not self._follows_plan:
            self.late += 1
            done = "captured" if captures else "run for the first time"
            name = " ".join(map(str, key)) if isinstance(key, tuple) else key
            log.warning("%s was %s while lines may wait: %.0f ms", name, done, 1000 * took)


class CaptureStream:
    """The stream that captures run on, created for a device on first use; ``urgent`` gives its kernels priority.

    Decoders that never run concurrently share one: libraries keep memory for each stream (cuBLAS 32 MiB on Hopper),
    and a graph keeps the memory that it was captured with.
    """

    def __init__(self, urgent: bool = False, warm_ups: WarmUps | None = None) -> None:
        self.warm_ups = warm_ups or WarmUps()
        self._priority = HIGHEST if urgent else 0
        self._stream: Any = None

    def on(self, device: torch.device) -> Any:
        if self._stream is None or self._stream.device != device:
            self._stream = torch.cuda.Stream(device, priority=self._priority)
        return self._stream


class CapturedGraphs:
    """CUDA graphs of functions over static buffers, by key.

    The first call of a key is eager, the second captures, later ones replay. The eager call does real work and warms up
    what a capture must not initialize. It runs on the capture stream, so that libraries' memory per stream (cuBLAS's
    workspace) exists before the capture and belongs to no graph. All graphs share one memory pool: they run
    consecutively, and their results are stored outside it. ``captures`` may be shared with others whose graphs never
    run concurrently.

    Without CUDA, and after a failed capture (which is logged once), every call is eager; ``fallback`` has the reason.
    Functions that allocate are ``temporary``: eager where a graph would keep their memory. No reference to the
    functions is kept.
    """

    def __init__(self, device: torch.device, captures: CaptureStream | None = None, temporary: bool = False):
        self.device = device
        self.fallback: Fallback | None = None if device.type == "cuda" else NO_CUDA
        if temporary and graphs_keep_memory(device):
            self.fallback = Fallback(GRAPHS, "they would keep temporary memory")
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        captures = captures or CaptureStream()
        self._warm_ups = captures.warm_ups
        self._stream: Any = None if self.fallback else captures.on(device)
        self._pool: Any = None if self.fallback else torch.cuda.graph_pool_handle()

    def forget(self) -> None:
        """Release all graphs and their memory; the next call of a key is eager, and the one after it captures."""
        if self._graphs:
            torch.cuda.synchronize(self.device)  # a replay may still be in flight
            self._graphs.clear()
            self._pool = torch.cuda.graph_pool_handle()  # a pool without graphs cannot be reused
        self._warm_ups.forget(self)

    def has(self, key: Hashable) -> bool:
        return self._graphs.get(key) is not None

    def lacks(self, key: Hashable) -> bool:
        """Return whether the function of this key can be captured and is not yet."""
        return self.fallback is None and not self.has(key)

    def prepare(self, key: Hashable, call: Callable[[], object]) -> None:
        """Repeat ``call``, which runs the function of this key, until it is captured; do nothing without CUDA."""
        while self.lacks(key):
            call()

    def plan(self, priority: int, key: Hashable, call: Callable[[], object]) -> None:
        """Leave ``prepare`` to ``WarmUps.prepare_next``; ``priority`` is one of its module."""
        if self.lacks(key):
            self._warm_ups.plan(priority, self, key, call)

    def run(self, key: Hashable, function: Callable[[], None]) -> None:
        """Call, capture or replay the function of this key, ordered by the current stream."""
        if self.fallback is None and key not in self._graphs:
            with self._warm_ups.noted(key, captures=False):
                self._warm_up(function)
            self._graphs[key] = None
            return
        if self.fallback is None and self._graphs[key] is None:
            with self._warm_ups.noted(key, captures=True):
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
    # Under cudaMallocAsync, memory of a failed capture that is freed later crashes the process in torch's allocator.
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


def next_power_of_2(count: int) -> int:
    # Batch sizes are powers of two, so that few are captured.
    return 1 << (count - 1).bit_length() if count else 0


def previous_power_of_2(count: int) -> int:
    return 1 << count.bit_length() >> 1

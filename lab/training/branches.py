"""Run independent networks concurrently on one GPU: their kernels are too short to fill it one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

Result = TypeVar("Result")


class Branches:
    """Runs functions on separate CUDA streams, or one after another.

    Their backward passes are concurrent too: autograd runs each on its forward's stream. Captured in a CUDA graph, the
    streams become branches of the graph.

    Args:
        device: of all tensors.
        count: number of streams; 0 runs everything on the current one. On a CPU there are none.
    """

    def __init__(self, device: torch.device, count: int = 0):
        self.streams = [torch.cuda.Stream(device) for _ in range(count)] if device.type == "cuda" else []

    def run(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """Return the functions' results, ready for use on the current stream.

        A function's inputs must live until its backward pass is done. Results used elsewhere should be small: their
        memory belongs to the branch's stream.
        """
        if not self.streams:
            return [work() for work in works]
        current = torch.cuda.current_stream(self.streams[0].device)
        results = []
        for index, work in enumerate(works):
            stream = self.streams[index % len(self.streams)]
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                results.append(work())
        for stream in self.streams[: len(works)]:
            current.wait_stream(stream)
        return results


IN_ORDER = Branches(torch.device("cpu"))

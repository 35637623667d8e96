"""Networks that do not wait for each other, side by side on one GPU: their kernels are too short to fill it alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

Result = TypeVar("Result")


class Branches:
    """Runs functions on streams of their own (CUDA), or one after another.

    Their backward passes lie side by side too: autograd runs each on its forward's stream. Captured in a CUDA graph the
    streams become branches of the graph.

    Args:
        device: of all tensors.
        count: streams; 0: everything on the current one. On a CPU there are none.
    """

    def __init__(self, device: torch.device, count: int = 0):
        self.streams = [torch.cuda.Stream(device) for _ in range(count)] if device.type == "cuda" else []

    def run(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """What the functions give, ready for the current stream.

        What a function reads must live until its backward pass is done; what it gives and is used outside should be
        small: its memory belongs to the branch.
        """
        if not self.streams:
            return [work() for work in works]
        current = torch.cuda.current_stream(self.streams[0].device)
        results = []
        for place, work in enumerate(works):
            stream = self.streams[place % len(self.streams)]
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                results.append(work())
        for stream in self.streams[: len(works)]:
            current.wait_stream(stream)
        return results


IN_ORDER = Branches(torch.device("cpu"))

"""Capture a function in a CUDA graph and replay it; call it plainly where that cannot be."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

log = logging.getLogger(__name__)


class Replayed:
    """A function of static buffers: called plainly at first, captured the second time, then replayed.

    The plain call is real work and warms up what a capture must not meet cold. On other devices than CUDA, and
    where a capture fails (with a warning that says why), every call is plain.
    """

    def __init__(self, function: Callable[[], None], device: torch.device, pool: Any):
        self.function = function
        self.on_cuda = device.type == "cuda"
        self.pool = pool
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.graph is None and self.on_cuda and self.calls == 2:
            self._capture()
        if self.graph is None:
            self.function()
        else:
            self.graph.replay()

    def _capture(self) -> None:
        try:
            graph = torch.cuda.CUDAGraph()
            # Another thread's CUDA calls (a preview's, say) must not spoil the capture.
            with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
                self.function()
        except RuntimeError as error:
            log.warning(
                "the frame could not be captured in a CUDA graph (%s): it runs op by op, slower", error
            )
            self.on_cuda = False
        else:
            self.graph = graph

"""Memory for the intermediate results of a frame's kernels: allocated before a capture, the same in every frame.

Triton's kernels cannot use memory that is allocated while a CUDA graph is captured. Under ComfyUI's default allocator
(cudaMallocAsync) it is a node of the graph, and Triton's launcher, which asks the driver for every pointer's owner,
refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Workspace:
    """Tensors by name, shape and dtype, allocated on first request and then reused.

    A tensor is valid until its name is requested again. Tensors stay allocated as long as the workspace exists: use
    it for one layer's results and a few of a pass, not for those of all layers.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._tensors: dict[tuple[str, tuple[int, ...], torch.dtype], torch.Tensor] = {}

    def empty(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return the tensor of this name and shape; its contents are undefined.

        Raises:
            RuntimeError: if it would have to be allocated during a capture.
        """
        key = (name, tuple(shape), dtype)
        if key not in self._tensors:
            if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    f"{name} {list(shape)} was not allocated before the capture: run the function directly first"
                )
            self._tensors[key] = torch.empty(key[1], dtype=dtype, device=self.device)
        return self._tensors[key]

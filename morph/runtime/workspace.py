"""Memory for what the kernels of a frame hand to one another: there before a capture, and the same in every frame.

What is allocated while a CUDA graph is captured will not do for Triton's kernels: under ComfyUI's default allocator
(cudaMallocAsync) it is a node of the graph, and Triton's launcher, which asks the driver for every pointer's owner,
refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class Workspace:
    """Tensors by name, shape and dtype, made when they are first asked for and never again.

    A name's tensor holds its numbers until the same name is asked for once more. What was made stays as long as the
    workspace does: for one layer's results and a few of a pass, not for all layers.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._tensors: dict[tuple[str, tuple[int, ...], torch.dtype], torch.Tensor] = {}

    def empty(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """The tensor of this name and shape, with whatever it held last.

        Raises:
            RuntimeError: for one that would have to be made during a capture.
        """
        key = (name, tuple(shape), dtype)
        if key not in self._tensors:
            if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    f"{name} {list(shape)} was not there before the capture: run it plainly first"
                )
            self._tensors[key] = torch.empty(key[1], dtype=dtype, device=self.device)
        return self._tensors[key]

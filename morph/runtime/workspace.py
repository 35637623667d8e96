"""Memory for the intermediate results of a frame's kernels, allocated before a capture.

Under ComfyUI's default allocator (cudaMallocAsync), memory allocated during a capture is a node of the graph, and
Triton's launcher refuses such pointers.
"""

from collections.abc import Sequence

import torch


class Workspace:
    """Tensors by name, shape and dtype, allocated on first request and then reused.

    A tensor is valid until its name is requested again, and stays allocated as long as the workspace: use names per
    layer or pass, not one for each of many layers.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._tensors: dict[tuple[str, tuple[int, ...], torch.dtype], torch.Tensor] = {}

    def empty(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Return the tensor of this name and shape, uninitialized; raise RuntimeError in a capture if it is new."""
        key = (name, tuple(shape), dtype)
        if key not in self._tensors:
            if self.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    f"{name} {list(shape)} was not allocated before the capture: run the function directly first"
                )
            self._tensors[key] = torch.empty(key[1], dtype=dtype, device=self.device)
        return self._tensors[key]

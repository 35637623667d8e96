"""Reports from the device, read late: the host reads a frame while later frames are already in flight."""

from __future__ import annotations

import torch

LAG = 2  # frames that the device is ahead of the host: wasted when the last line ends before its cap


class Readback:
    """A ring of ``LAG + 1`` host copies of one device tensor ``[B, N]``; on CUDA pinned, with one event each.

    Copies and writes must be on one stream: a cancelled decoding's copies then finish before the next one's.
    """

    def __init__(self, source: torch.Tensor):
        on_cuda = source.device.type == "cuda"
        self.source = source
        shape = (LAG + 1, *source.shape)
        self._copies = torch.empty(shape, dtype=source.dtype, pin_memory=on_cuda)
        self._events = [torch.cuda.Event() for _ in range(LAG + 1)] if on_cuda else []
        self.reset()

    def reset(self) -> None:
        self._pushed = self.waiting = 0

    def push(self) -> None:
        """Copy the source once the device has done all work so far; at most LAG reports may wait."""
        slot = self._pushed % (LAG + 1)
        self._copies[slot].copy_(self.source, non_blocking=True)
        if self._events:
            self._events[slot].record()
        self._pushed, self.waiting = self._pushed + 1, self.waiting + 1

    def pop(self) -> torch.Tensor:
        """Wait for the oldest report and return a CPU copy of it; there must be one."""
        slot = (self._pushed - self.waiting) % (LAG + 1)
        if self._events:
            self._events[slot].synchronize()
        self.waiting -= 1
        return self._copies[slot].clone()

"""Reports from the device, read late: the host looks at a frame when later ones are already on their way."""

from __future__ import annotations

import torch

LAG = 2  # frames that the device is ahead; as many are made in vain when the last line ends


class Readback:
    """A ring of ``LAG + 1`` host copies of one device tensor ``[B, N]``, pinned and with an event each on CUDA.

    The copies and what writes the tensor must run on one stream: then a copy left over from a decoding that was
    given up is done before the next one's.
    """

    def __init__(self, source: torch.Tensor):
        on_cuda = source.device.type == "cuda"
        self.source = source
        shape = (LAG + 1, *source.shape)
        self._copies = torch.empty(shape, dtype=source.dtype, pin_memory=on_cuda)
        self._events = [torch.cuda.Event() for _ in range(LAG + 1)] if on_cuda else []
        self._pushed = self._popped = 0

    @property
    def waiting(self) -> int:
        """Reports that have been pushed and not popped."""
        return self._pushed - self._popped

    def reset(self) -> None:
        """Forget what has not been popped."""
        self._pushed = self._popped = 0

    def push(self) -> None:
        """Copy the source as it is when the device has done all work so far. RuntimeError when the ring is full."""
        if self.waiting > LAG:
            raise RuntimeError(f"{self.waiting} reports wait to be read and there is room for {LAG + 1}")
        place = self._pushed % (LAG + 1)
        self._copies[place].copy_(self.source, non_blocking=True)
        if self._events:
            self._events[place].record()
        self._pushed += 1

    def pop(self) -> torch.Tensor:
        """The oldest report, a tensor of its own on the CPU; waits for it. RuntimeError when there is none."""
        if not self.waiting:
            raise RuntimeError("no report waits to be read")
        place = self._popped % (LAG + 1)
        if self._events:
            self._events[place].synchronize()
        self._popped += 1
        return self._copies[place].clone()

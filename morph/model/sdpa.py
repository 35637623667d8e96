"""Exclude cuDNN's attention: torch keeps that setting per process, not per thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Exclusion:
    """A reference count of the callers that exclude cuDNN's attention, in all threads of this process.

    torch's own ``sdpa_kernel`` restores the setting it found. If the ``with`` of two threads overlap, the first to end
    would allow cuDNN for the other, and the last would leave it excluded.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._before = True

    @contextmanager
    def block(self) -> Iterator[None]:
        """Exclude it until the last ``with`` ends, then restore the setting found by the first."""
        with self._lock:
            if not self._wanted:
                self._before = torch.backends.cuda.cudnn_sdp_enabled()
                torch.backends.cuda.enable_cudnn_sdp(False)
            self._wanted += 1
        try:
            yield
        finally:
            with self._lock:
                self._wanted -= 1
                if not self._wanted:
                    torch.backends.cuda.enable_cudnn_sdp(self._before)


# cuDNN makes a plan per shape: captures would keep them all, elsewhere each costs 24 ms (H200, torch 2.11).
without_cudnn = Exclusion().block

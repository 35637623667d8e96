"""Which of torch's attention kernels may run: torch keeps that per process, not per thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Exclusion:
    """Counts who wants cuDNN's attention excluded, in all threads of this process.

    torch's own ``sdpa_kernel`` restores what it found. Where two threads' ``with`` overlap, the first to end would
    allow cuDNN for the other, and the last would leave it excluded for good.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wanted = 0
        self._before = True

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Exclude it until the last ``with`` ends; then what was set before the first one is restored."""
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


# One for the process, as the flag that it sets. Without cuDNN because it makes a plan per shape: in captures the plans
# of every length would be kept, and outside of them each costs 24 ms (H200, torch 2.11).
without_cudnn = Exclusion().wanted
